"""Persistences that load runs wrongly; collected by an inner run alone."""

from collections.abc import Collection
from dataclasses import replace

from stagewright.memory import InMemoryPersistence
from stagewright.records import LoadedRun
from stagewright_conformance import LoadedRunSuite
from stagewright_test_support.doubles import PersistenceDoubles


class LoadsInAnyOrder(InMemoryPersistence):
    """Runs come in the order in which they were asked for."""

    async def load_runs(self, run_ids: Collection[str], *, lock: bool = False) -> list[LoadedRun]:
        loaded = {one.run.id: one for one in await super().load_runs(run_ids, lock=lock)}
        return [loaded[run_id] for run_id in run_ids if run_id in loaded]


class TestLoadsInAnyOrder(PersistenceDoubles, LoadedRunSuite):
    double = LoadsInAnyOrder


class LoadsBesideItsTransaction(InMemoryPersistence):
    """Inside a transaction what is committed is read."""

    async def load_runs(self, run_ids: Collection[str], *, lock: bool = False) -> list[LoadedRun]:
        if lock:
            await self.lock_runs(run_ids)
        return await InMemoryPersistence(self.database).load_runs(run_ids)


class TestLoadsBesideItsTransaction(PersistenceDoubles, LoadedRunSuite):
    double = LoadsBesideItsTransaction


class LoadsStagesBeforeItLocks(InMemoryPersistence):
    """A run is read once it is locked, and its stages before the wait."""

    async def load_runs(self, run_ids: Collection[str], *, lock: bool = False) -> list[LoadedRun]:
        stages = {one.run.id: one.stages for one in await super().load_runs(run_ids)}
        loaded = await super().load_runs(run_ids, lock=lock)
        return [replace(one, stages=stages.get(one.run.id, ())) for one in loaded]


class TestLoadsStagesBeforeItLocks(PersistenceDoubles, LoadedRunSuite):
    double = LoadsStagesBeforeItLocks


class LocksToLoad(InMemoryPersistence):
    """Whoever loads a run waits for its holder, whether it wants to lock it or not."""

    async def load_runs(self, run_ids: Collection[str], *, lock: bool = False) -> list[LoadedRun]:
        return await super().load_runs(run_ids, lock=True)


class TestLocksToLoad(PersistenceDoubles, LoadedRunSuite):
    double = LocksToLoad
