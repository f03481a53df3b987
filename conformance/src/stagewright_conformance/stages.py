"""Stages: rows, patches, versions, order."""

import asyncio
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.ports import Persistence
from stagewright.records import AnnotationQuery, ClaimCheck, ErrorRecord, StagePatch, StoredStage
from stagewright.status import Status
from stagewright_conformance.samples import (
    LATER,
    MOMENT,
    ODD_JSON,
    a_run,
    a_stage,
    an_annotation,
    exactly,
    new_id,
)
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["StageSuite"]

_SECOND = timedelta(seconds=1)


def _full_stage(run_id: str) -> StoredStage:
    return replace(
        a_stage(run_id, status=Status.SUSPENDED, stage_number=3, execution_group=2),
        attempt=4,
        started_at=MOMENT,
        completed_at=LATER,
        duration=timedelta(days=40, microseconds=1),
        error=ErrorRecord(code="STAGE_FAILED", message="👩🏽‍🚀", stage_id="price"),
        metrics={"odd": ODD_JSON},
        suspended_state=ODD_JSON,
        next_poll_at=LATER,
        poll_interval=timedelta(milliseconds=1_500),
        max_wait_until=LATER + timedelta(days=3_650),
        output=ODD_JSON,
        output_claim=ClaimCheck(key="runs/ключ", size=2**40),
        artifacts={"report": ClaimCheck(key="a b", size=0)},
        job_enqueued_at=LATER,
        waiting_step_id="ключ",
        nudged_at=LATER,
        steps_reset_owed_at=LATER,
    )


_NULLABLE = (
    "started_at", "completed_at", "duration", "error", "suspended_state", "next_poll_at", "poll_interval",
    "max_wait_until", "output", "output_claim", "job_enqueued_at", "waiting_step_id", "nudged_at",
    "steps_reset_owed_at",
)  # fmt: skip


class StageSuite(PersistenceSuite):
    """`StageStore`.

    Fixtures: those of `PersistenceSuite`.
    """

    @pytest_asyncio.fixture
    async def run_id(self, persistence: Persistence) -> str:
        """A run without stages."""
        run = a_run()
        await persistence.create_run(run)
        return run.id

    async def _stored(self, persistence: Persistence, stage: StoredStage) -> StoredStage:
        stored = await persistence.get_stage(stage.run_id, stage.stage_id)
        assert stored is not None
        return stored

    async def test_a_stage_comes_back_as_it_was_created(self, persistence: Persistence, run_id: str) -> None:
        """`create_stage`, `get_stage`: every field is kept exactly."""
        stage = _full_stage(run_id)
        await persistence.create_stage(stage)
        stored = await self._stored(persistence, stage)
        assert stored == stage
        assert exactly(stored.output) == exactly(stored.suspended_state) == exactly(ODD_JSON)
        assert exactly(stored.metrics) == exactly({"odd": ODD_JSON})

    async def test_a_bare_stage_comes_back_as_it_was_created(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`create_stage`: fields that are None or empty come back so."""
        stage = a_stage(run_id)
        await persistence.create_stage(stage)
        assert await self._stored(persistence, stage) == stage

    async def test_an_unknown_stage_is_none(self, persistence: Persistence, run_id: str) -> None:
        """`get_stage`: None if that run has no such stage, also when another run has it."""
        other = a_run()
        await persistence.create_run(other)
        await persistence.create_stage(a_stage(other.id))
        assert await persistence.get_stage(run_id, "price") is None
        assert await persistence.get_stage("no such run", "price") is None
        assert await persistence.get_stages_by_run(run_id) == []

    async def test_an_upsert_inserts_a_stage_as_it_is_given(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`upsert_stage`: a new one is inserted as it is given; answers the row that is stored now."""
        stage = replace(_full_stage(run_id), version=3)
        assert await persistence.upsert_stage(stage) == stage
        assert await persistence.get_stages_by_run(run_id) == [stage]

    async def test_an_upsert_writes_over_the_stage_that_is_there(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`upsert_stage`: `id` and `created_at` are kept, the version rises by one, all other fields are written."""
        for before, given in (
            (a_stage(run_id, stage_id="a"), replace(_full_stage(run_id), stage_id="a")),
            (replace(_full_stage(run_id), stage_id="b"), a_stage(run_id, stage_id="b", stage_number=9)),
        ):
            await persistence.create_stage(before)
            await persistence.update_stage(before.id, StagePatch(updated_at=MOMENT))
            given = replace(given, created_at=LATER, updated_at=LATER, version=7)
            expected = replace(given, id=before.id, created_at=before.created_at, version=3)
            assert await persistence.upsert_stage(given) == expected
            assert await self._stored(persistence, before) == expected
            again = await persistence.upsert_stage(expected)
            assert again == replace(expected, version=4) == await self._stored(persistence, before)
        assert len(await persistence.get_stages_by_run(run_id)) == 2

    async def test_an_upsert_counts_with_what_its_transaction_wrote(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`upsert_stage`: what was written before it in the transaction counts; undone with its transaction."""
        stage, given = a_stage(run_id), a_stage(run_id, stage_number=2)

        async def write() -> None:
            async with persistence.transaction() as tx:
                await tx.create_stage(stage)
                await tx.update_stage(stage.id, StagePatch(updated_at=LATER))
                written = await tx.upsert_stage(given)
                assert written == replace(given, id=stage.id, version=3)
                await tx.update_stage(written.id, StagePatch(updated_at=LATER), expected_version=3)
                raise LookupError

        with pytest.raises(LookupError):
            await write()
        assert await persistence.get_stages_by_run(run_id) == []

    async def test_an_upsert_that_can_not_be_kept_is_refused(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`upsert_stage`: refused if its run doesn't exist, or if a new one's `id` is another stage's."""
        stage = a_stage(run_id)
        await persistence.upsert_stage(stage)
        with pytest.raises(RecordNotFoundError):
            await persistence.upsert_stage(a_stage("no such run"))
        with pytest.raises(DuplicateRecordError):
            await persistence.upsert_stage(replace(stage, stage_id="ship"))
        assert await persistence.get_stages_by_run(run_id) == [stage]

    @pytest.mark.guarantee("stores.stages-upserted-in-place")
    async def test_of_many_upserts_at_once_one_inserts(
        self, persistence: Persistence, competitor: Persistence, scale: Scale, run_id: str
    ) -> None:
        """`upsert_stage`: of several callers at once one inserts, and the others write over that, each once."""
        given = [a_stage(run_id, stage_number=n) for n in range(scale.contenders)]
        stores = [persistence if n % 2 else competitor for n in range(scale.contenders)]
        writes = (store.upsert_stage(stage) for store, stage in zip(stores, given, strict=True))
        written = sorted(await scale.soon(asyncio.gather(*writes)), key=lambda stage: stage.version)
        assert [stage.version for stage in written] == [n + 1 for n in range(scale.contenders)]
        assert {stage.id for stage in written} == {written[0].id}
        assert await persistence.get_stages_by_run(run_id) == [written[-1]]

    @pytest.mark.parametrize("same_id", [False, True])
    async def test_an_upsert_waits_for_who_creates_the_stage(
        self,
        persistence: Persistence,
        competitor: Persistence,
        background: Background,
        scale: Scale,
        run_id: str,
        same_id: bool,
    ) -> None:
        """`upsert_stage`: writes over the stage of that id, also over one that is committed meanwhile."""
        stage = a_stage(run_id)
        given = replace(a_stage(run_id, stage_number=2), id=stage.id if same_id else new_id("stage"))
        async with persistence.transaction() as tx:
            await tx.create_stage(stage)
            await tx.get_stage(run_id, stage.stage_id)
            writing = background.start(competitor.upsert_stage(given))
            assert await scale.still_waits(writing)
        assert await scale.soon(writing) == replace(given, id=stage.id, version=2)

    async def test_a_second_stage_of_that_id_in_a_run_is_refused(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`create_stage`: `DuplicateRecordError` if its run has a stage of that id already."""
        stage = a_stage(run_id)
        await persistence.create_stage(stage)
        with pytest.raises(DuplicateRecordError):
            await persistence.create_stage(a_stage(run_id, stage_number=2))
        assert await persistence.get_stages_by_run(run_id) == [stage]

    async def test_a_stage_of_an_unknown_run_is_refused(self, persistence: Persistence) -> None:
        """`create_stage`: `RecordNotFoundError` if its run doesn't exist."""
        with pytest.raises(RecordNotFoundError):
            await persistence.create_stage(a_stage("no such run"))

    async def test_stages_are_listed_by_group_then_number(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`get_stages_by_run`: all stages of that run alone, by execution group, then by stage number."""
        places = [(2, 10), (1, 3), (1, 1), (10, 4), (2, 2)]
        for group, number in places:
            stage = a_stage(run_id, stage_id=f"s{number}", stage_number=number, execution_group=group)
            await persistence.create_stage(stage)
        other = a_run()
        await persistence.create_run(other)
        await persistence.create_stage(a_stage(other.id))
        listed = await persistence.get_stages_by_run(run_id)
        assert [(stage.execution_group, stage.stage_number) for stage in listed] == sorted(places)

    async def test_a_patch_changes_what_it_sets(self, persistence: Persistence, run_id: str) -> None:
        """`update_stage`: the fields that the patch sets are changed, every one of them."""
        stage = a_stage(run_id)
        await persistence.create_stage(stage)
        full = _full_stage(run_id)
        changes: dict[str, Any] = {field.name: getattr(full, field.name) for field in fields(StagePatch)}
        changes |= {"updated_at": LATER, "stage_name": "Renamed"}
        await persistence.update_stage(stage.id, StagePatch(**changes))
        assert await self._stored(persistence, stage) == replace(stage, version=2, **changes)

    async def test_a_field_that_is_not_set_keeps_its_value(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`StagePatch`: a field left UNSET keeps its value, and the version rises all the same."""
        stage = _full_stage(run_id)
        await persistence.create_stage(stage)
        await persistence.update_stage(stage.id, StagePatch(updated_at=LATER))
        assert await self._stored(persistence, stage) == replace(stage, updated_at=LATER, version=2)

    @pytest.mark.parametrize("name", _NULLABLE)
    async def test_a_field_that_is_set_to_none_is_cleared(
        self, persistence: Persistence, run_id: str, name: str
    ) -> None:
        """`StagePatch`: None is written, and only to the field that is set."""
        stage = _full_stage(run_id)
        await persistence.create_stage(stage)
        change: dict[str, Any] = {name: None}
        await persistence.update_stage(stage.id, StagePatch(updated_at=LATER, **change))
        assert await self._stored(persistence, stage) == replace(stage, updated_at=LATER, version=2, **change)

    @pytest.mark.guarantee("stores.stale-versions-write-nothing")
    async def test_a_stale_version_writes_nothing(self, persistence: Persistence, run_id: str) -> None:
        """`update_stage`: `StaleVersionError` if `expected_version` isn't the row's."""
        stage = a_stage(run_id)
        await persistence.create_stage(stage)
        await persistence.update_stage(stage.id, StagePatch(updated_at=MOMENT), expected_version=1)
        with pytest.raises(StaleVersionError) as caught:
            await persistence.update_stage(
                stage.id, StagePatch(updated_at=LATER, attempt=2), expected_version=1
            )
        assert (caught.value.id, caught.value.expected, caught.value.actual) == (stage.id, 1, 2)
        assert await self._stored(persistence, stage) == replace(stage, version=2)

    async def test_an_update_of_an_unknown_stage_is_refused(self, persistence: Persistence) -> None:
        """`update_stage`: `RecordNotFoundError` if there is no such record."""
        with pytest.raises(RecordNotFoundError):
            await persistence.update_stage("no such stage", StagePatch(updated_at=LATER))

    @pytest.mark.parametrize(
        ("due", "becomes"),
        [(LATER, MOMENT), (MOMENT - _SECOND, MOMENT - _SECOND), (MOMENT, MOMENT), (None, None)],
    )
    async def test_a_nudged_stage_waits_no_longer_than_until_then(
        self, persistence: Persistence, run_id: str, due: datetime | None, becomes: datetime | None
    ) -> None:
        """`nudge_stage`: a later `next_poll_at` becomes `at`, None stays; the version and all else stay too."""
        stage = replace(_full_stage(run_id), next_poll_at=due, nudged_at=None)
        await persistence.create_stage(stage)
        await persistence.nudge_stage(stage.id, MOMENT)
        expected = replace(stage, next_poll_at=becomes, nudged_at=MOMENT)
        assert await self._stored(persistence, stage) == expected

    async def test_a_nudge_counts_with_what_its_transaction_wrote(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`nudge_stage`: what was written before it in the transaction counts; undone with its transaction."""
        stage = a_stage(run_id)
        await persistence.create_stage(stage)

        async def nudge(*, keep: bool) -> None:
            async with persistence.transaction() as tx:
                await tx.update_stage(stage.id, StagePatch(updated_at=MOMENT, next_poll_at=LATER))
                await tx.nudge_stage(stage.id, MOMENT)
                if not keep:
                    raise LookupError

        with pytest.raises(LookupError):
            await nudge(keep=False)
        assert await self._stored(persistence, stage) == stage
        await nudge(keep=True)
        stored = await self._stored(persistence, stage)
        assert (stored.next_poll_at, stored.nudged_at, stored.version) == (MOMENT, MOMENT, 2)

    async def test_a_nudge_of_an_unknown_stage_is_refused(self, persistence: Persistence) -> None:
        """`nudge_stage`: `RecordNotFoundError` if there is no such record."""
        with pytest.raises(RecordNotFoundError):
            await persistence.nudge_stage("no such stage", MOMENT)

    async def test_a_deleted_stage_is_gone_and_can_be_made_anew(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`delete_stage`: deletes that stage alone; nothing happens if there is none."""
        stage, other = a_stage(run_id), a_stage(run_id, stage_id="ship", stage_number=2)
        await persistence.create_stage(stage)
        await persistence.create_stage(other)
        await persistence.delete_stage(stage.id)
        await persistence.delete_stage("no such stage")
        assert await persistence.get_stages_by_run(run_id) == [other]
        async with persistence.transaction() as tx:
            await tx.update_stage(other.id, StagePatch(updated_at=LATER))
            await tx.delete_stage(other.id)
            again = a_stage(run_id, stage_id="ship", stage_number=2)
            await tx.create_stage(again)
        assert await persistence.get_stages_by_run(run_id) == [again]

    async def test_annotations_outlive_their_stage(self, persistence: Persistence, run_id: str) -> None:
        """`delete_stage`: annotations that were made in it stay, with None for their stage record."""
        stage, other = a_stage(run_id), a_stage(run_id, stage_id="ship", stage_number=2)
        await persistence.create_stage(stage)
        await persistence.create_stage(other)
        of_stage, of_other = (
            replace(an_annotation(run_id, attempt=3), stage_record_id=one.id) for one in (stage, other)
        )
        await persistence.append_annotations([of_stage, of_other])
        await persistence.delete_stage(stage.id)
        kept = await persistence.list_annotations(run_id, AnnotationQuery())
        assert kept == [replace(of_stage, stage_record_id=None), of_other]

    async def test_what_a_caller_changes_later_does_not_reach_the_store(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`Persistence`: records and JSON values that go in or come out are the caller's own."""
        stage = replace(a_stage(run_id), metrics={"n": [1]}, output={"a": [1]})
        await persistence.create_stage(stage)
        stage.metrics["n"] = 2
        [first] = await persistence.get_stages_by_run(run_id)
        first.metrics["n"] = 3
        first.artifacts["x"] = ClaimCheck(key="k", size=1)
        assert isinstance(first.output, dict)
        first.output["a"] = "changed"
        second = await self._stored(persistence, stage)
        assert (second.metrics, second.output, second.artifacts) == ({"n": [1]}, {"a": [1]}, {})
