"""Persistences with one clause about rows, versions or values broken; collected by an inner run alone."""

import asyncio
import json
from dataclasses import replace
from datetime import datetime

import pytest

from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.ports import JobTransport, Persistence
from stagewright.records import UNSET, RunPatch, RunRecord, StagePatch, WorkOutlook
from stagewright_conformance import (
    IsolationSuite,
    JobOutlookSuite,
    OutlookSuite,
    RunSuite,
    StageSuite,
)
from stagewright_test_support.doubles import PersistenceDoubles


class AppliesStaleVersions(InMemoryPersistence):
    """An expected version is never compared."""

    async def update_run(self, run_id: str, patch: RunPatch, *, expected_version: int | None = None) -> None:
        await super().update_run(run_id, patch)


class TestAppliesStaleVersions(PersistenceDoubles, RunSuite):
    double = AppliesStaleVersions


class ComparesVersionsTooEarly(InMemoryPersistence):
    """A version is compared before the row is locked, so both of two writers pass."""

    async def update_run(self, run_id: str, patch: RunPatch, *, expected_version: int | None = None) -> None:
        run = await self.get_run(run_id)
        stale = run is None or expected_version not in (None, run.version)
        await asyncio.sleep(0)
        await super().update_run(run_id, patch, expected_version=expected_version if stale else None)


class TestComparesVersionsTooEarly(PersistenceDoubles, IsolationSuite):
    double = ComparesVersionsTooEarly


class WritesBeforeItRefuses(InMemoryPersistence):
    """A stale version is refused, after its patch was written."""

    async def update_stage(
        self, stage_record_id: str, patch: StagePatch, *, expected_version: int | None = None
    ) -> None:
        try:
            await super().update_stage(stage_record_id, patch, expected_version=expected_version)
        except Exception:
            await super().update_stage(stage_record_id, patch)
            raise


class TestWritesBeforeItRefuses(PersistenceDoubles, StageSuite):
    double = WritesBeforeItRefuses


class KeepsTheVersion(InMemoryPersistence):
    """An update without a guard leaves the version as it was."""

    async def update_run(self, run_id: str, patch: RunPatch, *, expected_version: int | None = None) -> None:
        await super().update_run(run_id, patch, expected_version=expected_version)
        if expected_version is None:
            async with self._statement("update_run") as tx:
                run = await tx.lock_row(self.database.runs, run_id)
                assert run is not None
                tx.put(self.database.runs, replace(run, version=run.version - 1))


class TestKeepsTheVersion(PersistenceDoubles, RunSuite):
    double = KeepsTheVersion


class ClearsWhatIsNotSet(InMemoryPersistence):
    """A field that a patch leaves alone is cleared."""

    async def update_run(self, run_id: str, patch: RunPatch, *, expected_version: int | None = None) -> None:
        cleared = replace(patch, error=None) if patch.error is UNSET else patch
        await super().update_run(run_id, cleared, expected_version=expected_version)


class TestClearsWhatIsNotSet(PersistenceDoubles, RunSuite):
    double = ClearsWhatIsNotSet


class LeaksRecords(InMemoryPersistence):
    """Every reader gets the same record, so that who changes it changes it for all."""

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.records: dict[str, RunRecord] = {}

    async def get_run(self, run_id: str) -> RunRecord | None:
        run = await super().get_run(run_id)
        known = self.records.get(run_id)
        if run is None or (known is not None and known.version == run.version):
            return known
        self.records[run_id] = run
        return run


class TestLeaksRecords(PersistenceDoubles, RunSuite):
    double = LeaksRecords


def _number(text: str) -> int | float:
    return int(float(text)) if float(text).is_integer() else float(text)


class TurnsWholeFloatsIntoIntegers(InMemoryPersistence):
    """1.0 comes back as 1."""

    async def create_run(self, run: RunRecord) -> None:
        await super().create_run(replace(run, input=json.loads(json.dumps(run.input), parse_float=_number)))


class TestTurnsWholeFloatsIntoIntegers(PersistenceDoubles, RunSuite):
    double = TurnsWholeFloatsIntoIntegers


class RoundsTimes(InMemoryPersistence):
    """Times are kept to the millisecond."""

    async def create_run(self, run: RunRecord) -> None:
        rounded = run.created_at.replace(microsecond=run.created_at.microsecond // 1000 * 1000)
        await super().create_run(replace(run, created_at=rounded))


class TestRoundsTimes(PersistenceDoubles, RunSuite):
    double = RoundsTimes


class IgnoresCaseInIds(InMemoryPersistence):
    """Ids are compared as some databases compare text by default."""

    async def create_run(self, run: RunRecord) -> None:
        await super().create_run(replace(run, id=run.id.lower()))

    async def get_run(self, run_id: str) -> RunRecord | None:
        run = await super().get_run(run_id.lower())
        return None if run is None else replace(run, id=run_id)


class TestIgnoresCaseInIds(PersistenceDoubles, RunSuite):
    double = IgnoresCaseInIds


class ForeseesNoPolls(InMemoryPersistence):
    """Suspended stages are not looked at."""

    async def outlook(self, now: datetime) -> WorkOutlook:
        return replace(await super().outlook(now), next_poll_at=None)


class ForeseesNoHeldJobs(InMemoryPersistence):
    """Jobs that workers have are not looked at."""

    async def outlook(self, now: datetime) -> WorkOutlook:
        return replace(await super().outlook(now), held_jobs=False)


class TestForeseesNoHeldJobs(PersistenceDoubles, JobOutlookSuite):
    double = ForeseesNoHeldJobs

    @pytest.fixture
    def database(self) -> InMemoryDatabase:
        return InMemoryDatabase()

    @pytest.fixture
    def persistence(self, database: InMemoryDatabase) -> Persistence:
        return self.double(database)

    @pytest.fixture
    def transport(self, database: InMemoryDatabase) -> JobTransport:
        return InMemoryJobTransport(database)


class TestForeseesNoPolls(PersistenceDoubles, OutlookSuite):
    double = ForeseesNoPolls
