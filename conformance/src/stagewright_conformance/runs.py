"""Runs: rows, patches, versions."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.ports import Persistence
from stagewright.records import ErrorRecord, RunPatch, RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_conformance.samples import LATER, MOMENT, ODD_JSON, ODD_TEXTS, a_run, exactly, new_id
from stagewright_conformance.suite import PersistenceSuite

__all__ = ["RunSuite"]

_FAILURE = ErrorRecord(
    code="STAGE_FAILED", message="no price", type="ValueError", traceback="Traceback …", stage_id="price"
)


def _full_run() -> RunRecord:
    return replace(
        a_run(status=Status.FAILED, input=ODD_JSON, definition_version="v1", priority=-3),
        output=ODD_JSON,
        error=_FAILURE,
        started_at=MOMENT + timedelta(microseconds=1),
        completed_at=LATER,
        duration=LATER - MOMENT - timedelta(microseconds=1),
        total_cost=Decimal("0.000123456789"),
        total_tokens=2**40,
        redrive_count=2,
    )


class RunSuite(PersistenceSuite):
    """`RunStore`: creating, reading and changing runs.

    Fixtures: those of `PersistenceSuite`.
    """

    async def _stored(self, persistence: Persistence, run: RunRecord) -> RunRecord:
        stored = await persistence.get_run(run.id)
        assert stored is not None
        return stored

    async def test_a_run_comes_back_as_it_was_created(self, persistence: Persistence) -> None:
        """`create_run`, `get_run`: every field is kept exactly, microseconds and UTC included."""
        run = _full_run()
        await persistence.create_run(run)
        stored = await self._stored(persistence, run)
        assert stored == run
        assert stored.created_at.utcoffset() == timedelta(0)
        assert stored.error == _FAILURE

    async def test_a_run_with_nothing_but_its_own_comes_back_so(self, persistence: Persistence) -> None:
        """`create_run`: fields that are None come back as None."""
        run = replace(a_run(), total_cost=None, config={})
        await persistence.create_run(run)
        assert await self._stored(persistence, run) == run

    @pytest.mark.guarantee("stores.json-comes-back-exact")
    async def test_json_comes_back_exactly(self, persistence: Persistence) -> None:
        """`Persistence`: a JSON value comes back in value and in type, whatever it holds."""
        run = replace(_full_run(), config={"price": ODD_JSON})
        await persistence.create_run(run)
        stored = await self._stored(persistence, run)
        assert exactly(stored.input) == exactly(ODD_JSON)
        assert exactly(stored.output) == exactly(ODD_JSON)
        assert exactly(stored.config) == exactly({"price": ODD_JSON})

    @pytest.mark.parametrize(
        "value", [None, False, 0, 0.0, "", [], {}, "null", 2**60, 1e-7, [None], {"a": None}]
    )
    async def test_a_json_value_at_the_top_comes_back_exactly(
        self, persistence: Persistence, value: object
    ) -> None:
        """`RunRecord.input`, `output`: any JSON, also one that looks empty."""
        run = replace(a_run(), input=value, output=value)  # type: ignore[arg-type]  # a parameter of several types
        await persistence.create_run(run)
        stored = await self._stored(persistence, run)
        assert (exactly(stored.input), exactly(stored.output)) == (exactly(value), exactly(value))

    async def test_odd_text_comes_back_exactly(self, persistence: Persistence) -> None:
        """`RunStore`: text columns keep every character that `text_problem` allows."""
        for text in ODD_TEXTS:
            run = replace(a_run(), workflow_name=text, error=replace(_FAILURE, message=text, traceback=text))
            await persistence.create_run(run)
            assert await self._stored(persistence, run) == run

    async def test_ids_are_compared_letter_by_letter(self, persistence: Persistence) -> None:
        """`get_run`: an id is exactly itself: neither case, accents nor trailing spaces are ignored."""
        stem = new_id("run")
        ids = [f"{stem}a", f"{stem}A", f"{stem}a ", f"{stem}á", f"{stem}_", f"{stem}%"]
        for run_id in ids:
            await persistence.create_run(a_run(id=run_id))
        found = [await persistence.get_run(run_id) for run_id in ids]
        assert [run.id for run in found if run is not None] == ids
        assert await persistence.get_run(f"{stem}b") is None

    async def test_an_unknown_run_is_none(self, persistence: Persistence) -> None:
        """`get_run`, `get_run_status`: None if there is no such run."""
        assert await persistence.get_run("no such run") is None
        assert await persistence.get_run_status("no such run") is None

    @pytest.mark.parametrize("status", [Status.PENDING, Status.RUNNING, *sorted(TERMINAL_RUN_STATUSES)])
    async def test_a_status_is_answered(self, persistence: Persistence, status: Status) -> None:
        """`get_run_status`: the run's status, of every kind."""
        run = a_run(status=status)
        await persistence.create_run(run)
        assert await persistence.get_run_status(run.id) is status

    async def test_a_second_run_with_the_id_is_refused(self, persistence: Persistence) -> None:
        """`create_run`: `DuplicateRecordError` if a run with its id exists, and the first stays."""
        run = a_run(priority=1)
        await persistence.create_run(run)
        with pytest.raises(DuplicateRecordError):
            await persistence.create_run(replace(run, priority=2))
        assert await self._stored(persistence, run) == run

    @pytest.mark.guarantee("stores.versions-rise-by-one")
    async def test_every_update_raises_the_version_by_one(self, persistence: Persistence) -> None:
        """`update_run`: raises the row's version by one, guarded or not, even when no field is set."""
        run = a_run()
        await persistence.create_run(run)
        await persistence.update_run(run.id, RunPatch(updated_at=LATER))
        await persistence.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=1), expected_version=2)
        async with persistence.transaction() as tx:
            await tx.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=2), expected_version=3)
            await tx.update_run(run.id, RunPatch(updated_at=LATER, output=[1]), expected_version=4)
        stored = await self._stored(persistence, run)
        assert stored == replace(run, updated_at=LATER, total_tokens=2, output=[1], version=5)

    async def test_a_patch_changes_what_it_sets(self, persistence: Persistence) -> None:
        """`update_run`: the fields that the patch sets are changed, every one of them."""
        run = a_run()
        await persistence.create_run(run)
        full = _full_run()
        patch = RunPatch(
            updated_at=LATER,
            status=full.status,
            output=full.output,
            error=full.error,
            started_at=full.started_at,
            completed_at=full.completed_at,
            duration=full.duration,
            total_cost=full.total_cost,
            total_tokens=full.total_tokens,
            definition_version=full.definition_version,
            redrive_count=full.redrive_count,
        )
        await persistence.update_run(run.id, patch)
        same = {
            "id": run.id,
            "input": run.input,
            "priority": 5,
        }
        expected = replace(full, updated_at=LATER, version=2, **same)  # type: ignore[arg-type]  # fields of several types
        assert await self._stored(persistence, run) == expected

    async def test_a_field_that_is_not_set_keeps_its_value(self, persistence: Persistence) -> None:
        """`RunPatch`: a field left UNSET keeps its value."""
        run = _full_run()
        await persistence.create_run(run)
        await persistence.update_run(run.id, RunPatch(updated_at=LATER))
        assert await self._stored(persistence, run) == replace(run, updated_at=LATER, version=2)

    async def test_a_field_that_is_set_to_none_is_cleared(self, persistence: Persistence) -> None:
        """`RunPatch`: None is written."""
        run = _full_run()
        await persistence.create_run(run)
        patch = RunPatch(
            updated_at=LATER,
            output=None,
            error=None,
            started_at=None,
            completed_at=None,
            duration=None,
            total_cost=None,
            definition_version=None,
        )
        await persistence.update_run(run.id, patch)
        stored = await self._stored(persistence, run)
        cleared = (
            stored.output,
            stored.error,
            stored.started_at,
            stored.completed_at,
            stored.duration,
            stored.total_cost,
            stored.definition_version,
        )
        assert cleared == (None,) * 7
        assert exactly(stored.input) == exactly(run.input)

    @pytest.mark.parametrize("expected", [1, 3, 0])
    @pytest.mark.guarantee("stores.stale-versions-write-nothing")
    async def test_a_stale_version_writes_nothing(self, persistence: Persistence, expected: int) -> None:
        """`update_run`: `StaleVersionError` if `expected_version` isn't the row's."""
        run = replace(a_run(), version=1)
        await persistence.create_run(run)
        await persistence.update_run(run.id, RunPatch(updated_at=MOMENT))
        with pytest.raises(StaleVersionError) as caught:
            await persistence.update_run(
                run.id, RunPatch(updated_at=LATER, status=Status.FAILED), expected_version=expected
            )
        assert (caught.value.id, caught.value.expected, caught.value.actual) == (run.id, expected, 2)
        assert await self._stored(persistence, run) == replace(run, version=2)

    async def test_an_update_of_an_unknown_run_is_refused(self, persistence: Persistence) -> None:
        """`update_run`: `RecordNotFoundError` if there is no such run, guarded or not."""
        with pytest.raises(RecordNotFoundError):
            await persistence.update_run("no such run", RunPatch(updated_at=LATER))
        with pytest.raises((RecordNotFoundError, StaleVersionError)):
            await persistence.update_run("no such run", RunPatch(updated_at=LATER), expected_version=1)
        assert await persistence.get_run("no such run") is None

    async def test_what_a_caller_changes_later_does_not_reach_the_store(
        self, persistence: Persistence
    ) -> None:
        """`Persistence`: values that go in or come out are the caller's own."""
        given: dict[str, object] = {"list": [1], "deep": {"a": 1}}
        run = replace(a_run(), input=given, config={"price": given})  # type: ignore[dict-item,arg-type]  # it is JSON
        await persistence.create_run(run)
        given["list"] = "changed"
        run.config["price"] = "changed"
        first = await self._stored(persistence, run)
        first.config["more"] = 1
        assert isinstance(first.input, dict)
        first.input["list"] = "changed"
        second = await self._stored(persistence, run)
        assert second.input == {"list": [1], "deep": {"a": 1}}
        assert second.config == {"price": {"list": [1], "deep": {"a": 1}}}

    async def test_a_patch_that_its_caller_changes_later_does_not_reach_the_store(
        self, persistence: Persistence
    ) -> None:
        """`Persistence`: changing a value later changes nothing, also when its write was held back."""
        run = a_run()
        await persistence.create_run(run)
        output: list[object] = [{"a": 1}]
        async with persistence.transaction() as tx:
            await tx.update_run(run.id, RunPatch(updated_at=LATER, output=output))  # type: ignore[arg-type]  # it is JSON
            output.append("changed")
            output[0] = "changed"
        assert (await self._stored(persistence, run)).output == [{"a": 1}]
