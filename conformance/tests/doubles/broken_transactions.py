"""Persistences with one clause about transactions or locks broken; collected by an inner run alone."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Self

from stagewright.errors import StaleVersionError
from stagewright.memory import InMemoryDatabase, InMemoryPersistence
from stagewright.records import LoadedRun, RunPatch, RunRecord
from stagewright_conformance import (
    ExpectedRunSuite,
    IsolationSuite,
    RowLockSuite,
    SavepointSuite,
    TransactionSuite,
)
from stagewright_test_support.doubles import PersistenceDoubles


class KeepsWhatRaised(InMemoryPersistence):
    """A block that raises is committed."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        raised: BaseException | None = None
        async with super().transaction() as tx:
            try:
                yield tx
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised


class TestKeepsWhatRaised(PersistenceDoubles, TransactionSuite):
    double = KeepsWhatRaised


class KeepsWhatWasCancelled(InMemoryPersistence):
    """A block that is cancelled is committed."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        cancelled = False
        async with super().transaction() as tx:
            try:
                yield tx
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError


class TestKeepsWhatWasCancelled(PersistenceDoubles, TransactionSuite):
    double = KeepsWhatWasCancelled


class CommitsEachCall(InMemoryPersistence):
    """A transaction is nothing but its calls, so others see them at once."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        yield self


class TestCommitsEachCall(PersistenceDoubles, IsolationSuite):
    double = CommitsEachCall


class HidesOwnWrites(InMemoryPersistence):
    """Reads inside a transaction see what is committed and nothing else."""

    async def get_run(self, run_id: str) -> RunRecord | None:
        return await InMemoryPersistence(self.database).get_run(run_id)


class TestHidesOwnWrites(PersistenceDoubles, IsolationSuite):
    double = HidesOwnWrites


class ReadsDirty(InMemoryPersistence):
    """Reads see what an open transaction of somebody else wrote."""

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.open: list[Self] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        async with super().transaction() as tx:
            self.open.append(tx)
            try:
                yield tx
            finally:
                self.open.remove(tx)

    async def get_run(self, run_id: str) -> RunRecord | None:
        if self.open and self not in self.open:
            return await self.open[-1].get_run(run_id)
        return await super().get_run(run_id)


class TestReadsDirty(PersistenceDoubles, IsolationSuite):
    double = ReadsDirty


class ReadsASnapshot(InMemoryPersistence):
    """A transaction reads a run once and never learns what others commit meanwhile."""

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.seen: dict[tuple[int, str], RunRecord | None] = {}

    async def get_run(self, run_id: str) -> RunRecord | None:
        if self._transaction is None:
            return await super().get_run(run_id)
        key = (id(self._transaction), run_id)
        if key not in self.seen:
            self.seen[key] = await super().get_run(run_id)
        return self.seen[key]


class TestReadsASnapshot(PersistenceDoubles, IsolationSuite):
    double = ReadsASnapshot


class KeepsWhatASavepointWrote(InMemoryPersistence):
    """A savepoint that raises undoes nothing."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        if self._transaction is not None:
            yield self
            return
        async with super().transaction() as tx:
            yield tx


class TestKeepsWhatASavepointWrote(PersistenceDoubles, SavepointSuite):
    double = KeepsWhatASavepointWrote


class CommitsASavepoint(InMemoryPersistence):
    """A savepoint that ends is committed for good."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        apart = type(self)(self.database)
        async with super(CommitsASavepoint, apart).transaction() as tx:
            yield tx


class TestCommitsASavepoint(PersistenceDoubles, SavepointSuite):
    double = CommitsASavepoint


class UndoesAllWithASavepoint(InMemoryPersistence):
    """A savepoint that raises ends the whole transaction."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        if self._transaction is None:
            async with super().transaction() as tx:
                yield tx
            return
        try:
            yield self
        except BaseException:
            self._transaction.roll_back()
            raise


class TestUndoesAllWithASavepoint(PersistenceDoubles, SavepointSuite):
    double = UndoesAllWithASavepoint


class LocksInAnyOrder(InMemoryPersistence):
    """Runs are locked in the order given."""

    async def lock_runs(self, run_ids: Collection[str]) -> list[RunRecord]:
        locked: list[RunRecord] = []
        for run_id in run_ids:
            locked += await super().lock_runs([run_id])
        return sorted(locked, key=lambda run: run.id)


class TestLocksInAnyOrder(PersistenceDoubles, RowLockSuite):
    double = LocksInAnyOrder


class HoldsNothing(InMemoryPersistence):
    """A row that was written is not held until the end of the transaction."""

    async def update_run(self, run_id: str, patch: RunPatch, *, expected_version: int | None = None) -> None:
        await super().update_run(run_id, patch, expected_version=expected_version)
        if self._transaction is not None:
            self._transaction.unlock((self.database.runs.name, run_id))


class TestHoldsNothing(PersistenceDoubles, RowLockSuite):
    double = HoldsNothing


class LocksNothing(InMemoryPersistence):
    """Runs are read without being locked."""

    async def lock_runs(self, run_ids: Collection[str]) -> list[RunRecord]:
        found = [await self.get_run(run_id) for run_id in sorted(set(run_ids))]
        return [run for run in found if run is not None]


class TestLocksNothing(PersistenceDoubles, RowLockSuite):
    double = LocksNothing


class ReadsBeforeItLocks(InMemoryPersistence):
    """A locked run is answered as it was before the wait."""

    async def lock_runs(self, run_ids: Collection[str]) -> list[RunRecord]:
        found = [await self.get_run(run_id) for run_id in sorted(set(run_ids))]
        await super().lock_runs(run_ids)
        return [run for run in found if run is not None]


class TestReadsBeforeItLocks(PersistenceDoubles, RowLockSuite):
    double = ReadsBeforeItLocks


class ExpectsVersionsOnly(InMemoryPersistence):
    """A run in which something has happened is taken for unchanged as long as its own version is."""

    async def expect_run(self, loaded: LoadedRun) -> None:
        [current] = await self.load_runs([loaded.run.id], lock=True) or [loaded]
        await super().expect_run(replace(loaded, last_sequence=current.last_sequence))


class TestExpectsVersionsOnly(PersistenceDoubles, ExpectedRunSuite):
    double = ExpectsVersionsOnly


class ExpectsWithoutALock(InMemoryPersistence):
    """A run is compared when it is expected, and may change until the commit."""

    async def expect_run(self, loaded: LoadedRun) -> None:
        current = await self.load_runs([loaded.run.id])
        if [(one.run.version, one.last_sequence) for one in current] != [
            (loaded.run.version, loaded.last_sequence)
        ]:
            raise StaleVersionError("run", loaded.run.id, loaded.run.version, None)


class TestExpectsWithoutALock(PersistenceDoubles, ExpectedRunSuite):
    double = ExpectsWithoutALock
