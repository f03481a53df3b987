"""Persistences with one clause about deleting runs or stages broken; collected by an inner run alone."""

from collections.abc import Collection
from datetime import datetime, timedelta

from stagewright.json_values import Json
from stagewright.memory import InMemoryPersistence
from stagewright.records import RunRecord, Tombstone
from stagewright.status import Status
from stagewright_conformance import PurgeSuite, StageSuite
from stagewright_test_support.doubles import PersistenceDoubles


class PurgesInAnyOrder(InMemoryPersistence):
    """The last to end goes first."""

    async def list_runs_for_purge(
        self, older_than: datetime, *, statuses: Collection[Status], limit: int
    ) -> list[RunRecord]:
        found = await super().list_runs_for_purge(older_than, statuses=statuses, limit=1_000)
        return found[::-1][:limit]


class TestPurgesInAnyOrder(PersistenceDoubles, PurgeSuite):
    double = PurgesInAnyOrder


class PurgesBeforeTheTime(InMemoryPersistence):
    """The boundary isn't part of it."""

    async def list_runs_for_purge(
        self, older_than: datetime, *, statuses: Collection[Status], limit: int
    ) -> list[RunRecord]:
        earlier = older_than - timedelta(microseconds=1)
        return await super().list_runs_for_purge(earlier, statuses=statuses, limit=limit)


class TestPurgesBeforeTheTime(PersistenceDoubles, PurgeSuite):
    double = PurgesBeforeTheTime


class LetsUntoldRunsTakePlaces(InMemoryPersistence):
    """Runs with pending events are left out after the limit was applied."""

    async def list_runs_for_purge(
        self, older_than: datetime, *, statuses: Collection[Status], limit: int
    ) -> list[RunRecord]:
        async with self._statement("list_runs_for_purge") as tx:
            ended = [
                run for status in set(statuses) for run in tx.where(self._database.runs, "status", status)
            ]
        due = [run for run in ended if (run.completed_at or run.updated_at) <= older_than]
        due.sort(key=lambda run: (run.completed_at or run.updated_at, run.id))
        return [run for run in due[:limit] if not await self.has_pending_events(run.id)]


class TestLetsUntoldRunsTakePlaces(PersistenceDoubles, PurgeSuite):
    double = LetsUntoldRunsTakePlaces


class LeavesEvents(InMemoryPersistence):
    """Events outlive their run."""

    async def delete_run(self, run_id: str) -> None:
        async with self._statement("looking") as tx:
            rows = tx.where(self._database.outbox, "run", run_id)
        await super().delete_run(run_id)
        async with self._statement("putting back") as tx:
            for row in rows:
                tx.put(self._database.outbox, row)


class TestLeavesEvents(PersistenceDoubles, PurgeSuite):
    double = LeavesEvents


class ForgetsWhichRun(InMemoryPersistence):
    """A key that is completed doesn't name the run that was made."""

    async def complete_idempotency_key(
        self, key: str, command_type: str, *, taken_at: datetime, result: Json, run_id: str | None = None
    ) -> None:
        await super().complete_idempotency_key(key, command_type, taken_at=taken_at, result=result)


class TestForgetsWhichRun(PersistenceDoubles, PurgeSuite):
    double = ForgetsWhichRun


class KeepsTheFirstTombstone(InMemoryPersistence):
    """A second tombstone of a run is dropped."""

    async def put_tombstone(self, tombstone: Tombstone) -> None:
        if tombstone.run_id not in {one.run_id for one in await self.list_tombstones(1_000)}:
            await super().put_tombstone(tombstone)


class TestKeepsTheFirstTombstone(PersistenceDoubles, PurgeSuite):
    double = KeepsTheFirstTombstone


class TellsEverybody(InMemoryPersistence):
    """Whoever removes a tombstone is told that it did."""

    async def remove_tombstone(self, run_id: str) -> bool:
        await super().remove_tombstone(run_id)
        return True


class TestTellsEverybody(PersistenceDoubles, PurgeSuite):
    double = TellsEverybody


class TakesAnnotationsAlong(InMemoryPersistence):
    """Annotations go with the stage that they were made in."""

    async def delete_stage(self, stage_record_id: str) -> None:
        annotations = self._database.annotations
        async with self._statement("delete_stage") as tx:
            for row in tx.all(annotations):
                if row.record.stage_record_id == stage_record_id:
                    tx.delete(annotations, row.record.id)
        await super().delete_stage(stage_record_id)


class TestTakesAnnotationsAlong(PersistenceDoubles, StageSuite):
    double = TakesAnnotationsAlong
