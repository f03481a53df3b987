"""Stages: rows, patches, versions, order."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.ports import Persistence
from stagewright.records import ClaimCheck, ErrorRecord, StagePatch, StoredStage
from stagewright.status import Status
from stagewright_conformance.samples import LATER, MOMENT, ODD_JSON, a_run, a_stage, exactly
from stagewright_conformance.suite import PersistenceSuite

__all__ = ["StageSuite"]


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
    )


_NULLABLE = (
    "started_at", "completed_at", "duration", "error", "suspended_state", "next_poll_at", "poll_interval",
    "max_wait_until", "output", "output_claim", "job_enqueued_at",
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
        changes["updated_at"] = LATER
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
