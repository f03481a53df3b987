"""Adapters with a fault that whole kernels over them show; collected by an inner run alone."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Self

from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.records import (
    DequeuedJob,
    EventRecord,
    IdempotencyAnswer,
    JobRecord,
    KeyAcquired,
    LeaseSweep,
    NewJob,
    Serves,
    SignalRecord,
    StepExpectation,
    StepPatch,
    StepRecord,
)
from stagewright_conformance import EngineCrashSuite, EngineCrowdSuite, EngineSuite
from stagewright_test_support.doubles import EngineDoubles


class KeepsHalf(InMemoryPersistence):
    """What was written before a transaction's caller was lost is kept."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        lost: BaseException | None = None
        async with super().transaction() as tx:
            try:
                yield tx
            except BaseException as error:
                if isinstance(error, Exception):
                    raise
                lost = error
        if lost is not None:
            raise lost


class TestKeepsHalf(EngineDoubles, EngineCrashSuite):
    persistence = KeepsHalf


class ForgetsKeys(InMemoryPersistence):
    """Everybody is given every key."""

    async def acquire_idempotency_key(
        self,
        key: str,
        command_type: str,
        *,
        fingerprint: str,
        now: datetime,
        stale_after: timedelta | None,
        run_id: str | None = None,
    ) -> IdempotencyAnswer:
        await super().acquire_idempotency_key(
            key, command_type, fingerprint=fingerprint, now=now, stale_after=timedelta(0), run_id=run_id
        )
        return KeyAcquired()


class TestForgetsKeys(EngineDoubles, EngineCrowdSuite):
    persistence = ForgetsKeys


class LosesEarlySignals(InMemoryPersistence):
    """A signal that nobody waits for yet is gone."""

    async def insert_signal_if_absent(self, signal: SignalRecord) -> bool:
        return True


class TestLosesEarlySignals(EngineDoubles, EngineSuite):
    persistence = LosesEarlySignals


class SkipsLateEvents(InMemoryPersistence):
    """It remembers how far it has delivered, and looks at what is dated after that alone."""

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.delivered_up_to = ""

    async def claim_unpublished_outbox_events(self, limit: int, **how: Any) -> list[EventRecord]:
        claimed = await super().claim_unpublished_outbox_events(limit, **how)
        offered = [event for event in claimed if event.id > self.delivered_up_to]
        self.delivered_up_to = max([self.delivered_up_to, *(event.id for event in offered)])
        return offered


class TestSkipsLateEvents(EngineDoubles, EngineSuite):
    persistence = SkipsLateEvents


class PublishesWhatItOffers(InMemoryPersistence):
    """Who is given an event is taken to have delivered it."""

    async def claim_unpublished_outbox_events(self, limit: int, **how: Any) -> list[EventRecord]:
        claimed = await super().claim_unpublished_outbox_events(limit, **how)
        ids = [event.id for event in claimed]
        await self.mark_outbox_events_published(ids, token=how["token"], now=how["now"])
        return claimed


class TestPublishesWhatItOffers(EngineDoubles, EngineCrashSuite):
    persistence = PublishesWhatItOffers


class OffersRefusedEventsLast(InMemoryPersistence):
    """An event that was refused comes after those of its run that weren't."""

    async def claim_unpublished_outbox_events(self, limit: int, **how: Any) -> list[EventRecord]:
        claimed = await super().claim_unpublished_outbox_events(limit, **how)
        return sorted(claimed, key=lambda event: event.retry_count)


class TestOffersRefusedEventsLast(EngineDoubles, EngineSuite):
    persistence = OffersRefusedEventsLast


class DeliversTwice(InMemoryJobTransport):
    """What it has delivered it delivers once more."""

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.again: list[DequeuedJob] = []

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        again, self.again = self.again, []
        if again:
            return again
        self.again = await super().dequeue(worker_id=worker_id, serves=serves, limit=limit)
        return self.again


class TestDeliversTwice(EngineDoubles, EngineCrowdSuite):
    transport = DeliversTwice
    apart = True


class ForgetsLostWorkers(InMemoryJobTransport):
    """A lease has no end."""

    async def release_stale(self, threshold: timedelta) -> LeaseSweep:
        return LeaseSweep()


class TestForgetsLostWorkers(EngineDoubles, EngineCrashSuite, EngineCrowdSuite):
    transport = ForgetsLostWorkers


class ForgetsOwedJobs(InMemoryJobTransport):
    """It says that it has the jobs of stages that go on, and has them only if it had them already."""

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        known = {
            (one.run_id, one.stage_id): one for job in jobs for one in await self.get_jobs_by_run(job.run_id)
        }
        return [known[job.run_id, job.stage_id] for job in jobs]


class TestForgetsOwedJobs(EngineDoubles, EngineSuite):
    transport = ForgetsOwedJobs


class KeepsJobsOfPurgedRuns(InMemoryJobTransport):
    """Jobs stay for ever."""

    async def delete_by_run_and_stages(self, run_id: str, stage_ids: Collection[str]) -> int:
        return len(stage_ids)


class TestKeepsJobsOfPurgedRuns(EngineDoubles, EngineSuite):
    transport = KeepsJobsOfPurgedRuns


class AppliesAnything(InMemoryStepLedger):
    """A step is changed whatever was expected of it."""

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        for status in ("running", "pending", "completed", "failed"):
            applied, step = await super().compare_and_set(record_id, StepExpectation(status=status), patch)
            if applied:
                return True, step
        return False, None


class TestAppliesAnything(EngineDoubles, EngineCrashSuite):
    ledger = AppliesAnything


class RemembersNoStep(InMemoryStepLedger):
    """A stage that goes on begins with an empty ledger."""

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        steps = await self.list(record.stage_record_id)
        await super().clear_except(
            record.stage_record_id, [step.step_id for step in steps if step.step_id != record.step_id]
        )
        return await super().claim(record)

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        return None


class TestRemembersNoStep(EngineDoubles, EngineSuite):
    ledger = RemembersNoStep


class LosesWhatItHasPromised(InMemoryBlobStore):
    """A blob is written with the one after it; until then the process that put it has it alone."""

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.held: dict[str, bytes] = {}

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        held, self.held = self.held, {key: data}
        for name, content in held.items():
            await super().put(name, content)
        return True

    async def get(self, key: str) -> bytes:
        return self.held[key] if key in self.held else await super().get(key)


class TestLosesWhatItHasPromised(EngineDoubles, EngineCrashSuite):
    blob_store = LosesWhatItHasPromised


class CutsValues(InMemoryBlobStore):
    """Only the beginning of a large value comes back."""

    async def get(self, key: str) -> bytes:
        await asyncio.sleep(0)
        return (await super().get(key))[:700]


class TestCutsValues(EngineDoubles, EngineSuite):
    blob_store = CutsValues


class KeepsBlobsOfPurgedRuns(InMemoryBlobStore):
    """Blobs stay for ever."""

    async def delete_many(self, keys: Collection[str]) -> None:
        return None


class TestKeepsBlobsOfPurgedRuns(EngineDoubles, EngineSuite):
    blob_store = KeepsBlobsOfPurgedRuns
