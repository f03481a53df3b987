"""The step ledger: claimed once, changed by one."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from stagewright.ports import Enlistable, Persistence, StepLedger
from stagewright.records import ClaimCheck, ErrorRecord, StepExpectation, StepOwner, StepPatch, StepRecord
from stagewright_conformance.samples import LATER, MOMENT, ODD_JSON, a_run, a_stage, a_step, exactly
from stagewright_conformance.suite import PersistenceSuite, Scale

__all__ = ["StepEnlistmentSuite", "StepLedgerSuite"]


def _full_step(stage_record_id: str) -> StepRecord:
    return replace(
        a_step(stage_record_id, result=ODD_JSON),
        kind="signal",
        status="failed",
        attempt=3,
        stage_attempt=2,
        owner=StepOwner(job_id="ключ", deliveries=2**31 - 1),
        deadline_at=LATER,
        retry_at=LATER,
        poll_interval=timedelta(days=3, microseconds=1),
        poll_failures=7,
        result_claim=ClaimCheck(key="runs/ключ", size=2**40),
        external_key="ключ",
        error=ErrorRecord(code="STEP_FAILED", message="no"),
    )


class _LedgerSuite(PersistenceSuite):
    @pytest.fixture
    def ledger(self) -> StepLedger:
        """The ledger under test, over the database of `persistence`, empty."""
        raise NotImplementedError("override the fixture `ledger` with an empty ledger for each test")

    @pytest_asyncio.fixture
    async def stage_id(self, persistence: Persistence) -> str:
        """The id of a stage record without steps."""
        run = a_run()
        stage = a_stage(run.id)
        await persistence.create_run(run)
        await persistence.create_stage(stage)
        return stage.id


class StepLedgerSuite(_LedgerSuite):
    """`StepLedger`.

    Fixtures: those of `PersistenceSuite`, of which `persistence` is required (the tests make the stage records there),
    and `ledger` (required: the ledger, empty for each test; one in the persistence's database is over that one, and for
    any other `persistence` may be one in memory).
    """

    async def test_a_step_comes_back_as_it_was_claimed(self, ledger: StepLedger, stage_id: str) -> None:
        """`claim`, `get`: whether it was inserted, and the row that is there now, exactly."""
        step = _full_step(stage_id)
        assert await ledger.claim(step) == (True, step)
        stored = await ledger.get(stage_id, step.step_id)
        assert stored is not None
        assert stored == step
        assert exactly(stored.result) == exactly(ODD_JSON)
        bare = replace(a_step(stage_id, step_id="bare"), lease_expires_at=None)
        assert await ledger.claim(bare) == (True, bare)
        assert await ledger.get(stage_id, "bare") == bare

    async def test_an_unknown_step_is_none(self, ledger: StepLedger, stage_id: str) -> None:
        """`get`: the step, or None; `list`: nothing."""
        assert await ledger.get(stage_id, "none") is None
        assert await ledger.list(stage_id) == []

    async def test_a_step_is_claimed_once(self, ledger: StepLedger, stage_id: str) -> None:
        """`claim`: never raises on a conflict, and answers the row that is there."""
        first = a_step(stage_id, result=1)
        second = replace(a_step(stage_id, seq=9, result=2), kind="sleep", status="pending")
        assert (await ledger.claim(first))[0]
        assert await ledger.claim(second) == (False, first)
        assert await ledger.list(stage_id) == [first]
        other = a_step(stage_id, step_id="Charge")
        assert await ledger.claim(other) == (True, other)

    @pytest.mark.guarantee("stores.steps-claimed-by-one")
    async def test_of_many_claimers_one_inserts(
        self, ledger: StepLedger, stage_id: str, scale: Scale
    ) -> None:
        """`claim`: inserts a step if its stage record has none of that id, also in a race."""
        steps = [a_step(stage_id, seq=n) for n in range(scale.contenders)]
        answers = await scale.soon(asyncio.gather(*map(ledger.claim, steps)))
        assert [inserted for inserted, _ in answers].count(True) == 1
        [stored] = await ledger.list(stage_id)
        assert all(row == stored for _, row in answers)

    @pytest.mark.parametrize(
        ("expectation", "applies"),
        [
            (StepExpectation(status="running"), True),
            (StepExpectation(status="running", attempt=2), True),
            (StepExpectation(status="running", attempt=1), False),
            (StepExpectation(status="completed"), False),
            (StepExpectation(status="completed", attempt=2), False),
        ],
    )
    async def test_a_step_is_changed_if_it_is_as_expected(
        self, ledger: StepLedger, stage_id: str, expectation: StepExpectation, applies: bool
    ) -> None:
        """`compare_and_set`: whether it applied, and the row that is there now; a None attempt doesn't matter."""
        step = replace(a_step(stage_id), attempt=2)
        await ledger.claim(step)
        patch = StepPatch(updated_at=LATER, status="completed", result={"a": 1.0})
        expected = replace(step, updated_at=LATER, status="completed", result={"a": 1.0}) if applies else step
        assert await ledger.compare_and_set(step.id, expectation, patch) == (applies, expected)
        assert await ledger.get(stage_id, step.step_id) == expected

    async def test_an_unknown_step_is_not_changed(self, ledger: StepLedger) -> None:
        """`compare_and_set`: (False, None) for an unknown record."""
        patch = StepPatch(updated_at=LATER)
        assert await ledger.compare_and_set("none", StepExpectation(status="running"), patch) == (False, None)

    async def test_a_field_that_is_not_set_keeps_its_value(self, ledger: StepLedger, stage_id: str) -> None:
        """`StepPatch`: a field left UNSET keeps its value."""
        step = _full_step(stage_id)
        await ledger.claim(step)
        _, row = await ledger.compare_and_set(
            step.id, StepExpectation(status="failed"), StepPatch(updated_at=LATER)
        )
        assert row == replace(step, updated_at=LATER)

    @pytest.mark.parametrize(
        "name",
        ["owner", "lease_expires_at", "deadline_at", "retry_at", "result", "result_claim", "error"],
    )
    async def test_a_field_that_is_set_to_none_is_cleared(
        self, ledger: StepLedger, stage_id: str, name: str
    ) -> None:
        """`StepPatch`: None is written, and only to the field that is set."""
        step = _full_step(stage_id)
        await ledger.claim(step)
        change: dict[str, Any] = {name: None}
        patch = StepPatch(updated_at=MOMENT, **change)
        await ledger.compare_and_set(step.id, StepExpectation(status="failed"), patch)
        assert await ledger.get(stage_id, step.step_id) == replace(step, **change)

    async def test_a_field_that_is_set_to_a_value_gets_it(self, ledger: StepLedger, stage_id: str) -> None:
        """`StepPatch`: what is set is written, and nothing else."""
        step = a_step(stage_id)
        await ledger.claim(step)
        change: dict[str, Any] = {
            "status": "failed",
            "attempt": 7,
            "stage_attempt": 4,
            "owner": StepOwner(job_id="job", deliveries=3),
            "lease_expires_at": MOMENT,
            "deadline_at": MOMENT,
            "retry_at": LATER,
            "poll_failures": 5,
            "result": ODD_JSON,
            "result_claim": ClaimCheck(key="a b", size=0),
            "error": ErrorRecord(code="STEP_FAILED", message="no", type="ValueError"),
        }
        for name, value in change.items():
            patch: dict[str, Any] = {name: value}
            expected = StepExpectation(status=step.status)
            step = replace(step, updated_at=LATER, **patch)
            answer = await ledger.compare_and_set(step.id, expected, StepPatch(updated_at=LATER, **patch))
            assert answer == (True, step)
            assert await ledger.get(stage_id, step.step_id) == step

    @pytest.mark.guarantee("stores.steps-changed-by-one")
    async def test_of_many_with_one_expectation_one_succeeds(
        self, ledger: StepLedger, stage_id: str, scale: Scale
    ) -> None:
        """`compare_and_set`: atomically: of several callers with one expectation one succeeds."""
        step = a_step(stage_id)
        await ledger.claim(step)

        async def change(number: int) -> tuple[bool, StepRecord | None]:
            patch = StepPatch(updated_at=LATER, attempt=2, result=number)
            return await ledger.compare_and_set(step.id, StepExpectation(status="running", attempt=1), patch)

        answers = await scale.soon(asyncio.gather(*map(change, range(scale.contenders))))
        [winner] = [n for n, (applied, _) in enumerate(answers) if applied]
        stored = await ledger.get(stage_id, step.step_id)
        assert stored is not None
        assert (stored.attempt, stored.result) == (2, winner)
        assert all(row == stored for _, row in answers)

    async def test_steps_are_listed_by_seq_then_id(
        self, ledger: StepLedger, persistence: Persistence, stage_id: str
    ) -> None:
        """`list`: all steps of a stage record and of no other, by `seq`, then by id."""
        order = [("b", 2), ("z", 1), ("c", 10), ("a", 2)]
        for step_id, seq in order:
            await ledger.claim(a_step(stage_id, id=f"{step_id}-{stage_id}", step_id=step_id, seq=seq))
        run = a_run()
        other = a_stage(run.id)
        await persistence.create_run(run)
        await persistence.create_stage(other)
        await ledger.claim(a_step(other.id))
        assert [step.step_id for step in await ledger.list(stage_id)] == ["z", "a", "b", "c"]

    @pytest.mark.parametrize(
        ("keep", "left"), [(["a", "x"], ["a"]), ([], []), (["a", "b"], ["a", "b"]), (["A"], [])]
    )
    async def test_steps_are_cleared_but_for_those_to_keep(
        self, ledger: StepLedger, persistence: Persistence, stage_id: str, keep: list[str], left: list[str]
    ) -> None:
        """`clear_except`: an empty `keep` deletes all; `clear`: all of that stage record alone."""
        run = a_run()
        other = a_stage(run.id)
        await persistence.create_run(run)
        await persistence.create_stage(other)
        for stage_record_id in (stage_id, other.id):
            for step_id in ("a", "b"):
                await ledger.claim(a_step(stage_record_id, step_id=step_id))
        await ledger.clear_except(stage_id, keep)
        assert sorted(step.step_id for step in await ledger.list(stage_id)) == left
        await ledger.clear(stage_id)
        assert await ledger.list(stage_id) == []
        assert len(await ledger.list(other.id)) == 2

    async def test_a_result_is_the_callers_own(self, ledger: StepLedger, stage_id: str) -> None:
        """`StepLedger`: changing a value after it went in or came out changes nothing in the store."""
        result: Any = {"list": [1]}
        step = a_step(stage_id, result=result)
        await ledger.claim(step)
        result["list"] = 2
        stored = await ledger.get(stage_id, step.step_id)
        assert stored is not None
        assert isinstance(stored.result, dict)
        stored.result["list"] = 3
        assert [row.result for row in await ledger.list(stage_id)] == [{"list": [1]}]


class StepEnlistmentSuite(_LedgerSuite):
    """`Enlistable.enlist` of a ledger.

    Fixtures: those of `StepLedgerSuite`, over one database.
    """

    @pytest.mark.parametrize("kept", [True, False])
    @pytest.mark.guarantee("stores.enlisted-writes-share-the-fate")
    async def test_steps_share_the_fate_of_the_transaction(
        self, ledger: StepLedger, persistence: Persistence, stage_id: str, kept: bool
    ) -> None:
        """`enlist`: the same port, whose writes are kept or undone with `tx`."""
        old, run = a_step(stage_id, step_id="old"), a_run()
        await ledger.claim(old)

        async def write() -> None:
            async with persistence.transaction() as tx:
                assert isinstance(ledger, Enlistable)
                enlisted = ledger.enlist(tx)
                assert isinstance(enlisted, StepLedger)
                await enlisted.claim(a_step(stage_id, step_id="new"))
                await enlisted.clear_except(stage_id, ["new"])
                await tx.create_run(run)
                assert [step.step_id for step in await enlisted.list(stage_id)] == ["new"]
                assert [step.step_id for step in await ledger.list(stage_id)] == ["old"]
                if not kept:
                    raise LookupError

        if kept:
            await write()
        else:
            with pytest.raises(LookupError):
                await write()
        assert [step.step_id for step in await ledger.list(stage_id)] == (["new"] if kept else ["old"])
        assert (await persistence.get_run(run.id) is not None) is kept
