from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.memory.event_sequences import last_sequence
from stagewright.memory.rows import AnnotationRow
from stagewright.memory.runs import InMemoryRunStore
from stagewright.memory.served import is_served
from stagewright.memory.transaction import Transaction
from stagewright.records import LoadedRun, RunRecord, Serves, StagePatch, StoredStage
from stagewright.records.copies import detached, detached_fields
from stagewright.status import Status

__all__ = ["InMemoryStageStore"]


class InMemoryStageStore(InMemoryRunStore):
    """Stages, one row per run and stage id, and runs with them.

    See `StageStore`, `WaitingStageStore` and `RunStore`.
    """

    async def create_stage(self, stage: StoredStage) -> None:
        """Insert a stage."""
        async with self._statement("create_stage") as tx:
            if tx.get(self._database.runs, stage.run_id) is None:
                raise RecordNotFoundError("run", stage.run_id)
            if await self._of_that_id(tx, stage) is not None:
                raise DuplicateRecordError("stage", f"{stage.run_id}/{stage.stage_id}")
            await self._insert_stage(tx, stage)

    async def upsert_stage(self, stage: StoredStage) -> StoredStage:
        """Insert a stage, or write it over the one of that id that its run has, under the run's lock."""
        stages = self._database.stages
        async with self._statement("upsert_stage") as tx:
            if await tx.lock_row(self._database.runs, stage.run_id) is None:
                raise RecordNotFoundError("run", stage.run_id)
            there = await self._of_that_id(tx, stage)
            if there is not None:
                there = await tx.lock_row(stages, there.id)
            if there is None:
                return await self._insert_stage(tx, stage)
            written = replace(stage, id=there.id, created_at=there.created_at, version=there.version + 1)
            tx.put(stages, detached(written))
            return detached(written)

    async def update_stage(
        self, stage_record_id: str, patch: StagePatch, *, expected_version: int | None = None
    ) -> None:
        """Change the fields that the patch sets, and raise the version by one."""
        stages = self._database.stages
        async with self._statement("update_stage") as tx:
            stage = await tx.lock_row(stages, stage_record_id)
            if stage is None:
                raise RecordNotFoundError("stage", stage_record_id)
            if expected_version is not None and stage.version != expected_version:
                raise StaleVersionError("stage", stage_record_id, expected_version, stage.version)
            tx.put(stages, replace(stage, **detached_fields(patch), version=stage.version + 1))

    async def nudge_stage(self, stage_record_id: str, at: datetime) -> None:
        """Let a stage wait no longer than until `at`, without a new version."""
        stages = self._database.stages
        async with self._statement("nudge_stage") as tx:
            stage = await tx.lock_row(stages, stage_record_id)
            if stage is None:
                raise RecordNotFoundError("stage", stage_record_id)
            due = None if stage.next_poll_at is None else min(stage.next_poll_at, at)
            tx.put(stages, replace(stage, next_poll_at=due, nudged_at=at))

    async def delete_stage(self, stage_record_id: str) -> None:
        """Delete a stage; its annotations stay."""
        stages, annotations = self._database.stages, self._database.annotations
        async with self._statement("delete_stage") as tx:
            stage = await tx.lock_row(stages, stage_record_id)
            if stage is None:
                return
            tx.delete(stages, stage_record_id)
            for row in tx.where(annotations, "run", stage.run_id):
                if row.record.stage_record_id == stage_record_id:
                    await tx.lock((annotations.name, row.record.id))
                    kept = replace(row.record, stage_record_id=None)
                    tx.put(annotations, AnnotationRow(kept, row.position))

    async def get_stage(self, run_id: str, stage_id: str) -> StoredStage | None:
        """The stage, or None."""
        async with self._statement("get_stage") as tx:
            stage = tx.first(self._database.stages, "stage", (run_id, stage_id))
            return None if stage is None else detached(stage)

    async def get_suspended_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        """SUSPENDED stages that are due, the earliest first, skipping runs that another transaction holds."""

        def is_due(stage: StoredStage) -> bool:
            due = stage.next_poll_at
            return stage.status is Status.SUSPENDED and due is not None and due <= before

        async with self._statement("get_suspended_stages") as tx:
            due = filter(is_due, tx.where(self._database.stages, "status", Status.SUSPENDED))
            ordered = sorted(due, key=lambda stage: (stage.next_poll_at or before, stage.id))
            return self._of_free_runs(tx, ordered, is_due, limit, serves)

    async def get_owed_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        """Stages that want a job and have none, the earliest changed first, skipping runs as above."""

        def is_owed(stage: StoredStage) -> bool:
            waits = stage.status is Status.SUSPENDED and stage.next_poll_at is None
            wants = stage.status is Status.PENDING or waits
            return wants and stage.job_enqueued_at is None and stage.updated_at <= before

        async with self._statement("get_owed_stages") as tx:
            stages = self._database.stages
            idle = [
                *tx.where(stages, "status", Status.PENDING),
                *tx.where(stages, "status", Status.SUSPENDED),
            ]
            ordered = sorted(filter(is_owed, idle), key=lambda stage: (stage.updated_at, stage.id))
            return self._of_free_runs(tx, ordered, is_owed, limit, serves)

    async def _of_that_id(self, tx: Transaction, stage: StoredStage) -> StoredStage | None:
        """The stage of that id that its run has, whose place nobody else can take until the transaction ends."""
        place = (stage.run_id, stage.stage_id)
        await tx.lock(("stages of runs", place))
        return tx.first(self._database.stages, "stage", place)

    async def _insert_stage(self, tx: Transaction, stage: StoredStage) -> StoredStage:
        stages = self._database.stages
        await tx.lock((stages.name, stage.id))
        if tx.get(stages, stage.id) is not None:
            raise DuplicateRecordError("stage", stage.id)
        tx.put(stages, detached(stage))
        return detached(stage)

    def _of_free_runs(
        self,
        tx: Transaction,
        stages: Iterable[StoredStage],
        fits: Callable[[StoredStage], bool],
        limit: int,
        serves: Serves,
    ) -> list[StoredStage]:
        """The first of these stages whose runs are RUNNING, served, and held by nobody else.

        Inside a transaction the runs are locked; outside, what is committed is read past their holders.
        """
        runs = self._database.runs

        def is_wanted(run: RunRecord) -> bool:
            served = is_served(serves, run.workflow_id, run.definition_version)
            return run.status is Status.RUNNING and served

        found: list[StoredStage] = []
        for stage in stages:
            if len(found) >= limit:
                break
            run = tx.get(runs, stage.run_id)
            if self._transaction is not None:
                run = next(tx.skip_locked(runs, (stage.run_id,), is_wanted), None)
            current = tx.get(self._database.stages, stage.id)
            if run is not None and is_wanted(run) and current is not None and fits(current):
                found.append(detached(current))
        return found

    async def get_stages_by_run(self, run_id: str) -> list[StoredStage]:
        """All stages of a run, by execution group, then by stage number."""
        async with self._statement("get_stages_by_run") as tx:
            stages = tx.where(self._database.stages, "run", run_id)
            stages.sort(key=lambda stage: (stage.execution_group, stage.stage_number))
            return [detached(stage) for stage in stages]

    async def load_runs(self, run_ids: Collection[str], *, lock: bool = False) -> list[LoadedRun]:
        """Read runs with their stages; with `lock`, once they are locked."""
        async with self._statement("load_runs") as tx:
            loaded: list[LoadedRun] = []
            runs = self._database.runs
            ordered = sorted(set(run_ids))
            for run_id in ordered if lock else ():
                await tx.lock_row(runs, run_id)
            for run_id in ordered:
                run = tx.get(runs, run_id)
                if run is not None:
                    stages = tx.where(self._database.stages, "run", run_id)
                    stages.sort(key=lambda stage: (stage.execution_group, stage.stage_number))
                    seen = tuple(detached(stage) for stage in stages)
                    loaded.append(LoadedRun(detached(run), seen, last_sequence(tx, self._database, run_id)))
            return loaded
