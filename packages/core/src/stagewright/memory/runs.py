from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.memory.connection import Connection
from stagewright.memory.event_sequences import last_sequence
from stagewright.memory.served import is_served
from stagewright.records import LoadedRun, RunPatch, RunRecord, Serves, StoredStage
from stagewright.records.copies import detached, detached_fields
from stagewright.status import Status

__all__ = ["InMemoryRunStore"]


class InMemoryRunStore(Connection):
    """Runs, one row each; see `RunStore` and `RunClaims`."""

    async def create_run(self, run: RunRecord) -> None:
        """Insert a run."""
        runs = self._database.runs
        async with self._statement("create_run") as tx:
            await tx.lock((runs.name, run.id))
            if tx.get(runs, run.id) is not None:
                raise DuplicateRecordError("run", run.id)
            tx.put(runs, detached(run))

    async def update_run(self, run_id: str, patch: RunPatch, *, expected_version: int | None = None) -> None:
        """Change the fields that the patch sets, and raise the version by one."""
        runs = self._database.runs
        async with self._statement("update_run") as tx:
            run = await tx.lock_row(runs, run_id)
            if run is None:
                raise RecordNotFoundError("run", run_id)
            if expected_version is not None and run.version != expected_version:
                raise StaleVersionError("run", run_id, expected_version, run.version)
            tx.put(runs, replace(run, **detached_fields(patch), version=run.version + 1))

    async def get_run(self, run_id: str) -> RunRecord | None:
        """The run, or None."""
        async with self._statement("get_run") as tx:
            run = tx.get(self._database.runs, run_id)
            return None if run is None else detached(run)

    async def get_run_status(self, run_id: str) -> Status | None:
        """The run's status, or None if there is no such run."""
        async with self._statement("get_run_status") as tx:
            run = tx.get(self._database.runs, run_id)
            return None if run is None else run.status

    async def lock_runs(self, run_ids: Collection[str]) -> list[RunRecord]:
        """Lock runs in the order of their ids, and read them as they are once locked."""
        async with self._statement("lock_runs") as tx:
            locked: list[RunRecord] = []
            for run_id in sorted(set(run_ids)):
                run = await tx.lock_row(self._database.runs, run_id)
                if run is not None:
                    locked.append(detached(run))
            return locked

    async def expect_run(self, loaded: LoadedRun) -> None:
        """Lock a run, and refuse the transaction unless it is as it was loaded."""
        expected = loaded.run
        async with self._statement("expect_run") as tx:
            run = await tx.lock_row(self._database.runs, expected.id)
            if run is None or run.version != expected.version:
                current = None if run is None else run.version
                raise StaleVersionError("run", expected.id, expected.version, current)
            last = last_sequence(tx, self._database, expected.id)
            if last != loaded.last_sequence:
                raise StaleVersionError("last event of run", expected.id, loaded.last_sequence, last)

    async def get_stuck_runs(
        self, before: datetime, *, limit: int, after: str | None = None, serves: Serves = None
    ) -> list[RunRecord]:
        """RUNNING runs in which nothing has changed, and which wait for no time, by id."""

        def stands_still(stage: StoredStage) -> bool:
            waits = stage.status is Status.SUSPENDED and stage.next_poll_at is not None
            return stage.updated_at <= before and not waits

        async with self._statement("get_stuck_runs") as tx:
            running = sorted(tx.where(self._database.runs, "status", Status.RUNNING), key=lambda run: run.id)
            stuck = [
                detached(run)
                for run in running
                if run.updated_at <= before
                and (after is None or run.id > after)
                and is_served(serves, run.workflow_id, run.definition_version)
                and all(map(stands_still, tx.where(self._database.stages, "run", run.id)))
            ]
            return stuck[: max(limit, 0)]

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        """Make up to `limit` PENDING runs RUNNING, skipping those that another transaction holds."""
        runs = self._database.runs
        claimed: list[RunRecord] = []
        async with self._statement("claim_pending_runs") as tx:
            if limit < 1:
                return claimed
            pending = [
                run
                for run in tx.where(runs, "status", Status.PENDING)
                if is_served(serves, run.workflow_id, run.definition_version)
            ]
            pending.sort(key=lambda run: (-run.priority, run.created_at, run.id))
            for run in tx.skip_locked(runs, [run.id for run in pending], _is_pending):
                run = replace(
                    run,
                    status=Status.RUNNING,
                    started_at=run.started_at or now,
                    updated_at=now,
                    version=run.version + 1,
                )
                tx.put(runs, run)
                claimed.append(detached(run))
                if len(claimed) == limit:
                    break
        return claimed


def _is_pending(run: RunRecord) -> bool:
    return run.status is Status.PENDING
