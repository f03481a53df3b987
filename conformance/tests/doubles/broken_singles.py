"""Persistences whose operations on a single run, stage, line or event are broken; collected by an inner run alone."""

import asyncio
from dataclasses import replace
from datetime import datetime

from stagewright.errors import DuplicateRecordError
from stagewright.memory import InMemoryPersistence
from stagewright.records import LogRecord, RunRecord, Serves, StoredStage
from stagewright.status import Status
from stagewright_conformance import LogSuite, RunClaimSuite, StageSuite
from stagewright_test_support.doubles import PersistenceDoubles


class TakesTheLastOne(InMemoryPersistence):
    """The next run is the one that a batch would end with."""

    async def claim_next_pending_run(self, *, now: datetime, serves: Serves = None) -> RunRecord | None:
        async with self.transaction() as tx:
            claimed = await tx.claim_pending_runs(1_000, now=now, serves=serves)
            async with tx._statement("give back") as rows:
                for run in claimed[:-1]:
                    pending = replace(run, status=Status.PENDING, started_at=None, version=run.version - 1)
                    rows.put(self.database.runs, pending)
        return claimed[-1] if claimed else None


class TestTakesTheLastOne(PersistenceDoubles, RunClaimSuite):
    double = TakesTheLastOne


class TakesWhateverIsNext(InMemoryPersistence):
    """The next run is claimed whoever serves it."""

    async def claim_next_pending_run(self, *, now: datetime, serves: Serves = None) -> RunRecord | None:
        return next(iter(await self.claim_pending_runs(1, now=now, serves=None)), None)


class TestTakesWhateverIsNext(PersistenceDoubles, RunClaimSuite):
    double = TakesWhateverIsNext


class RefusesAKnownLine(InMemoryPersistence):
    """A single line whose id exists already is an error."""

    async def create_log(self, line: LogRecord) -> None:
        known = await self.list_logs(line.run_id, level=None, limit=1_000, cursor=None)
        if any(other.id == line.id for other in known.items):
            raise DuplicateRecordError("log line", line.id)
        await super().create_log(line)


class TestRefusesAKnownLine(PersistenceDoubles, LogSuite):
    double = RefusesAKnownLine


class LogsOutside(InMemoryPersistence):
    """A single line is kept whatever becomes of its transaction."""

    async def create_log(self, line: LogRecord) -> None:
        await InMemoryPersistence(self.database).create_log(line)


class TestLogsOutside(PersistenceDoubles, LogSuite):
    double = LogsOutside


class MakesStagesAnew(InMemoryPersistence):
    """A stage that is there is deleted, and the given one inserted in its place."""

    async def upsert_stage(self, stage: StoredStage) -> StoredStage:
        async with self.transaction() as tx:
            await tx.lock_runs([stage.run_id])
            there = await tx.get_stage(stage.run_id, stage.stage_id)
            if there is None:
                return await InMemoryPersistence.upsert_stage(tx, stage)
            await tx.delete_stage(there.id)
            return await InMemoryPersistence.upsert_stage(tx, replace(stage, version=there.version + 1))


class TestMakesStagesAnew(PersistenceDoubles, StageSuite):
    double = MakesStagesAnew


class LooksBeforeItWrites(InMemoryPersistence):
    """A stage that isn't there yet is inserted later, whoever has inserted it meanwhile."""

    async def upsert_stage(self, stage: StoredStage) -> StoredStage:
        if await self.get_stage(stage.run_id, stage.stage_id) is not None:
            return await super().upsert_stage(stage)
        await asyncio.sleep(0)
        await self.create_stage(stage)
        return stage


class TestLooksBeforeItWrites(PersistenceDoubles, StageSuite):
    double = LooksBeforeItWrites


class WritesSomeFieldsOver(InMemoryPersistence):
    """What a stage that is there has and the given one hasn't is kept."""

    async def upsert_stage(self, stage: StoredStage) -> StoredStage:
        there = await self.get_stage(stage.run_id, stage.stage_id)
        error = stage.error if there is None else stage.error or there.error
        return await super().upsert_stage(replace(stage, error=error))


class TestWritesSomeFieldsOver(PersistenceDoubles, StageSuite):
    double = WritesSomeFieldsOver


class KeepsTheVersionItIsGiven(InMemoryPersistence):
    """A stage that is written over has the version that its writer named."""

    async def upsert_stage(self, stage: StoredStage) -> StoredStage:
        written = await super().upsert_stage(stage)
        async with self._statement("upsert_stage") as tx:
            there = await tx.lock_row(self.database.stages, written.id)
            assert there is not None
            tx.put(self.database.stages, replace(there, version=stage.version))
        return replace(written, version=stage.version)


class TestKeepsTheVersionItIsGiven(PersistenceDoubles, StageSuite):
    double = KeepsTheVersionItIsGiven
