"""Job transports and step ledgers with one clause broken; collected by an inner run alone."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Self

from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryStepLedger
from stagewright.ports import Persistence
from stagewright.records import (
    UNSET,
    DequeuedJob,
    NewJob,
    Serves,
    StepExpectation,
    StepPatch,
    StepRecord,
)
from stagewright_conformance import (
    JobQueueSuite,
    StepEnlistmentSuite,
    StepLedgerSuite,
    TransportEnlistmentSuite,
)
from stagewright_test_support.doubles import TransportDoubles


class EnqueuesDuplicates(InMemoryJobTransport):
    """A second job for a stage stands beside the first."""

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        known = {job.stage_id for each in jobs for job in await self.get_jobs_by_run(each.run_id)}
        beside = [replace(job, stage_id=f"{job.stage_id} {job.id}") for job in jobs if job.stage_id in known]
        others = [job for job in jobs if job.stage_id not in known]
        await super().enqueue_parallel([*beside, *others])
        return [job.id for job in jobs]


class TestEnqueuesDuplicates(TransportDoubles, JobQueueSuite):
    double = EnqueuesDuplicates


class KeepsCounters(InMemoryJobTransport):
    """A replaced job's failures count against its successor."""

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        async with self._statement("look") as tx:
            before = {
                (job.run_id, job.stage_id): tx.get(self.database.jobs, (job.run_id, job.stage_id))
                for job in jobs
            }
        ids = await super().enqueue_parallel(jobs)
        async with self._statement("keep") as tx:
            for key, old in before.items():
                row = tx.get(self.database.jobs, key)
                if row is not None and old is not None:
                    record = replace(row.record, deliveries=old.record.deliveries)
                    tx.put(self.database.jobs, replace(row, record=record))
        return ids


class TestKeepsCounters(TransportDoubles, JobQueueSuite):
    double = KeepsCounters


class DeliversTwice(InMemoryJobTransport):
    """Two callers at once get the same job."""

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.asking: asyncio.Future[list[DequeuedJob]] | None = None

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        if self.asking is not None:
            return await self.asking
        self.asking = asyncio.get_running_loop().create_future()
        taken = await super().dequeue(worker_id=worker_id, serves=serves, limit=limit)
        self.asking.set_result(taken)
        self.asking = None
        return taken


class TestDeliversTwice(TransportDoubles, JobQueueSuite):
    double = DeliversTwice


class DeliversOldestFirst(InMemoryJobTransport):
    """Priorities are kept and don't count."""

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        async with self.transaction() as tx, tx._statement("level") as rows:
            real = {row.record.id: row.record.priority for row in rows.all(self.database.jobs)}
            for row in rows.all(self.database.jobs):
                rows.put(self.database.jobs, replace(row, record=replace(row.record, priority=0)))
            taken = await InMemoryJobTransport.dequeue(tx, worker_id=worker_id, serves=serves, limit=limit)
            for row in rows.all(self.database.jobs):
                record = replace(row.record, priority=real[row.record.id])
                rows.put(self.database.jobs, replace(row, record=record))
        return [replace(job, priority=real[job.job_id]) for job in taken]


class TestDeliversOldestFirst(TransportDoubles, JobQueueSuite):
    double = DeliversOldestFirst


class DeliversEarly(InMemoryJobTransport):
    """A job is delivered before it is due."""

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        return await super().enqueue_parallel([replace(job, due_at=None) for job in jobs])


class TestDeliversEarly(TransportDoubles, JobQueueSuite):
    double = DeliversEarly


class DeliversWhatIsNotServed(InMemoryJobTransport):
    """Any version of a served workflow is delivered."""

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        return await super().dequeue(worker_id=worker_id, serves=serves or None, limit=limit)


class TestDeliversWhatIsNotServed(TransportDoubles, JobQueueSuite):
    double = DeliversWhatIsNotServed


class StaysOutside(InMemoryJobTransport):
    """An enlisted transport writes at once, on its own."""

    def enlist(self, tx: Persistence) -> Self | None:
        return None if super().enlist(tx) is None else self


class TestStaysOutside(TransportDoubles, TransportEnlistmentSuite):
    double = StaysOutside


class EnlistsAnywhere(InMemoryJobTransport):
    """Another database is no obstacle."""

    def enlist(self, tx: Persistence) -> Self | None:
        return super().enlist(tx) or self


class TestEnlistsAnywhere(TransportDoubles, TransportEnlistmentSuite):
    double = EnlistsAnywhere


class RecordsOutside(InMemoryStepLedger):
    """An enlisted ledger writes at once, on its own."""

    def enlist(self, tx: Persistence) -> Self | None:
        return None if super().enlist(tx) is None else self


class TestRecordsOutside(TransportDoubles, StepLedgerSuite, StepEnlistmentSuite):
    double_ledger = RecordsOutside


class ClearsOutside(InMemoryStepLedger):
    """An enlisted ledger deletes at once, whatever becomes of the transaction."""

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        await InMemoryStepLedger(self.database).clear_except(stage_record_id, keep)
        await super().clear_except(stage_record_id, keep)


class TestClearsOutside(TransportDoubles, StepLedgerSuite, StepEnlistmentSuite):
    double_ledger = ClearsOutside


class ChangesAStepTwice(InMemoryStepLedger):
    """An expectation is judged before the change is made."""

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        async with self._statement("look") as tx:
            step = tx.first(self.database.steps, "id", record_id)
        if (
            step is None
            or step.status != expectation.status
            or expectation.attempt not in (None, step.attempt)
        ):
            return False, step
        await asyncio.sleep(0)
        return await super().compare_and_set(record_id, StepExpectation(status=step.status), patch)


class TestChangesAStepTwice(TransportDoubles, StepLedgerSuite):
    double_ledger = ChangesAStepTwice


class ForgetsOwners(InMemoryStepLedger):
    """A change of owner is not kept."""

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        return await super().compare_and_set(record_id, expectation, replace(patch, owner=UNSET))


class TestForgetsOwners(TransportDoubles, StepLedgerSuite):
    double_ledger = ForgetsOwners


class ReclaimsSteps(InMemoryStepLedger):
    """Claiming a step again overwrites it."""

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        await super().clear_except(record.stage_record_id, await self._others(record))
        return await super().claim(record)

    async def _others(self, record: StepRecord) -> list[str]:
        steps = await self.list(record.stage_record_id)
        return [step.step_id for step in steps if step.step_id != record.step_id]


class TestReclaimsSteps(TransportDoubles, StepLedgerSuite):
    double_ledger = ReclaimsSteps
