"""Kernels over the adapters of one deployment, and a clock that goes on when a test says so."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import pytest

from stagewright import Kernel, Workflow, WorkflowRegistry
from stagewright.commands import ClaimJobs, ClaimPendingRuns, FlushOutbox, ReapStuckRuns
from stagewright.hosting import HOST_DEFAULTS, HostSettings, run_job, run_maintenance_tick
from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.plugins import AdapterSet
from stagewright.ports import Clock
from stagewright.records import DequeuedJob, KeyAcquired, RunRecord, StepRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright.testing import CollectingEventSink, assert_consistent
from stagewright_conformance.job_transport import PassTime
from stagewright_conformance.processes import Process
from stagewright_conformance.suite import Suite

__all__ = ["Deployment", "DeploymentSuite", "Errand", "MovingClock"]

Errand: TypeAlias = Callable[[Kernel], Awaitable[bool]]
"""What is done beside the workers; True as long as there was, or still is, something to do."""

SPILLED_FROM: Final = 300
"""Bytes of JSON from which the kernels of the suite keep a value in the blob store."""

_MOST_ROUNDS: Final = 120
_ALL: Final = 1_000
_OPEN: Final = (Status.PENDING, Status.RUNNING)
"""A job that sleeps when its run ends may be left in a queue elsewhere: it is never delivered, and a purge takes it."""
_STEP: Final = timedelta(seconds=6)
"""So far the clock goes on where nothing else happens: more than a job is owed before upkeep enqueues it."""


class MovingClock:
    """The clock of the adapters, and what a test has let it go on by."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._ahead = timedelta()

    def now(self) -> datetime:
        """The time, in UTC."""
        return self._now() + self._ahead

    def advance(self, time: timedelta) -> None:
        """Go on by so much."""
        self._ahead += time


class _Undo(Exception):
    """Ends a transaction that was only to look."""


@dataclass(slots=True, kw_only=True)
class Deployment:
    """Two handles on the same stores, as two processes have them, and what is the same for both.

    Attributes:
        handles: The adapters by process, every port of them there.
        clock: The clock of all kernels.
        pass_time: Lets time pass on the transport's clock.
        lease_unit: After so long without renewal a lease is stale.
        sink: Where events go.
    """

    handles: tuple[AdapterSet, AdapterSet]
    clock: MovingClock
    pass_time: PassTime
    lease_unit: timedelta
    sink: CollectingEventSink = field(default_factory=CollectingEventSink)

    @property
    def settings(self) -> HostSettings:
        """Of hosts that find a lost worker soon; at most one of them works at a time."""
        return HOST_DEFAULTS.having(
            {"stale_lease_threshold": self.lease_unit, "job_heartbeat_interval": self.lease_unit / 2}
        )

    def kernel(
        self, *workflows: Workflow, handle: int = 0, process: Process | None = None, **settings: Any
    ) -> Kernel:
        """A kernel over one of the handles.

        Args:
            workflows: What it serves.
            handle: Which of the handles; any number is one of them.
            process: The process that it is in; by default one that lives.
            settings: Further arguments of `Kernel`.
        """
        given = replace(self.handles[handle % 2], event_sink=self.sink)
        ports = given if process is None else process.adapters(given)
        arguments: dict[str, Any] = {
            name: getattr(ports, name)
            for name in ("persistence", "job_transport", "step_ledger", "blob_store", "event_sink")
        }
        if ports.run_reader is not None:
            arguments["run_reader"] = ports.run_reader
        arguments |= {"clock": self.clock, "registry": WorkflowRegistry(workflows)}
        arguments |= {"spill_threshold_bytes": SPILLED_FROM, **settings}
        return Kernel(**arguments)

    async def let_time_pass(self) -> None:
        """Let what waits for a time come, and what leases nobody renews end."""
        self.clock.advance(_STEP)
        await self.pass_time(self.lease_unit * 2)

    async def work_off(
        self, kernel: Kernel, run_id: str, errand: Errand | None = None, *, goes_on: bool = False
    ) -> RunRecord:
        """Do what workers and upkeep do, until a run has ended, its jobs too, and all events are delivered.

        Args:
            kernel: The only kernel that works meanwhile.
            run_id: The run.
            errand: What else is done meanwhile.
            goes_on: Whether the worker takes what follows a stage together with its outcome, and the jobs of a run
                together with its claim, where the transport can.

        Raises:
            AssertionError: If a part of the upkeep failed, or the run doesn't end.
        """
        for _ in range(_MOST_ROUNDS):
            jobs: tuple[DequeuedJob, ...] = ()
            if goes_on:
                jobs = (await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=8))).jobs
            report = await run_maintenance_tick(kernel, self.settings)
            assert report.failed_steps == (), "a part of the upkeep failed; its log says why"
            jobs += (await kernel.dispatch(ClaimJobs("worker", limit=8))).jobs
            for result in await asyncio.gather(
                *(_execute(kernel, job, goes_on=goes_on) for job in jobs), return_exceptions=True
            ):
                if isinstance(result, BaseException):
                    raise result
            is_busy = errand is not None and await errand(kernel)
            if jobs or is_busy or report.made_work:
                continue
            run = await self._ended(run_id)
            if run is not None:
                await self.deliver(kernel)
                return run
            await self.let_time_pass()
            await kernel.dispatch(ReapStuckRuns("1s"))
        raise AssertionError(f"the run doesn't end: {await self._described(run_id)}")

    async def deliver(self, kernel: Kernel) -> None:
        """Deliver all events, also those under the claim of a process that was lost."""
        for _ in range(_MOST_ROUNDS):
            while (await kernel.dispatch(FlushOutbox())).published:
                pass
            if not await kernel.ports.persistence.get_unpublished_outbox_events(1):
                return
            self.clock.advance(timedelta(minutes=2))
        raise AssertionError("there are events that can't be delivered")

    async def ended_well(self, kernel: Kernel, *run_ids: str) -> list[list[str]]:
        """Check what is kept of runs that have ended, and what was delivered of them.

        Args:
            kernel: A kernel that lives.
            run_ids: The runs.

        Returns:
            The types of the events of each, in order.

        Raises:
            AssertionError: With what is wrong.
        """
        await assert_consistent(kernel)
        return [await self._told_of(kernel, run_id) for run_id in run_ids]

    async def left_of(self, kernel: Kernel, run_id: str, stage_record_ids: Sequence[str]) -> list[str]:
        """What is still there of a run that was purged, in words."""
        ports = kernel.ports
        steps = [await self.steps_of(kernel, record_id) for record_id in stage_record_ids]
        found = {
            "the run": await kernel.runs.get(run_id),
            "stages": await ports.persistence.get_stages_by_run(run_id),
            "events": await ports.run_reader.list_events(run_id, after=0, limit=_ALL),
            "annotations": await kernel.annotations.list(run_id),
            "log lines": (await kernel.runs.logs(run_id)).items,
            "signals": await ports.persistence.list_signals(run_id),
            "jobs": await ports.job_transport.get_jobs_by_run(run_id),
            "steps": [step for of_record in steps for step in of_record],
            "blobs": [key async for key in ports.blob_store.list("") if run_id in key],
            "tombstones": [
                one.run_id for one in await ports.persistence.list_tombstones(_ALL) if one.run_id == run_id
            ],
        }
        return [f"{what}: {left}" for what, left in found.items() if left]

    @staticmethod
    async def steps_of(kernel: Kernel, stage_record_id: str) -> Sequence[StepRecord]:
        """The durable steps of a stage record, as the ledger has them."""
        ledger = kernel.ports.step_ledger
        return [] if ledger is None else await ledger.list(stage_record_id)

    @staticmethod
    async def is_key_free(kernel: Kernel, key: str, command_type: str) -> bool:
        """Whether nothing is known of an idempotency key; nothing is changed."""
        answer: object = None
        try:
            async with kernel.ports.persistence.transaction() as tx:
                answer = await tx.acquire_idempotency_key(
                    key, command_type, fingerprint="", now=kernel.ports.clock.now(), stale_after=None
                )
                raise _Undo
        except _Undo:
            return isinstance(answer, KeyAcquired)

    async def _told_of(self, kernel: Kernel, run_id: str) -> list[str]:
        events = await kernel.runs.events(run_id, limit=_ALL)
        assert [event.type for event in events if event.published_at is None] == []
        delivered = [event for event in self.sink.events if event.run_id == run_id]
        in_order = list(dict.fromkeys(event.event_id for event in delivered))
        assert in_order == [event.id for event in events], (
            "delivered is not what was written, or in another order"
        )
        told = [event.payload["stage_id"] for event in events if event.type == "stage:completed"]
        assert len(told) == len(set(told)), f"stages that were completed: {told}"
        jobs = await kernel.ports.job_transport.get_jobs_by_run(run_id)
        open_jobs = [job for job in jobs if job.status in _OPEN or job.locked_at]
        assert open_jobs == [], "jobs are left over"
        return [event.type for event in events]

    async def _ended(self, run_id: str) -> RunRecord | None:
        kernel = self.kernel()
        run = await kernel.runs.get(run_id)
        assert run is not None, f"run {run_id} is not there"
        jobs = await kernel.ports.job_transport.get_jobs_by_run(run_id)
        is_over = run.status in TERMINAL_RUN_STATUSES
        return None if not is_over or any(job.status in _OPEN for job in jobs) else run

    async def _described(self, run_id: str) -> str:
        kernel = self.kernel()
        run = await kernel.runs.get(run_id)
        stages = [(stage.stage_id, stage.status) for stage in await kernel.runs.stages(run_id)]
        jobs = await kernel.ports.job_transport.get_jobs_by_run(run_id)
        return f"{run and run.status}, stages {stages}, jobs {[(job.stage_id, job.status) for job in jobs]}"


async def _execute(kernel: Kernel, job: DequeuedJob, *, goes_on: bool) -> None:
    """Execute a job, and with `goes_on` whatever is handed over with its outcome."""
    following: DequeuedJob | None = job
    while following is not None:
        result = await run_job(kernel, following, successor=(lambda: "worker") if goes_on else None)
        following = result.next_job


class DeploymentSuite(Suite):
    """Fixtures of the suites that run kernels.

    Fixtures to override: `adapters` (required: the ports under test, over empty stores for each test; a port that is
    None comes from memory), `other_adapters` (another handle on the same stores, as a second process has it; the same
    one by default), and where the transport's clock can be set, `pass_time`, `clock_now` and `lease_unit`, which
    otherwise sleep for real.
    """

    @pytest.fixture
    def adapters(self) -> AdapterSet:
        """The ports under test."""
        raise NotImplementedError("override the fixture `adapters` with an AdapterSet over empty stores")

    @pytest.fixture
    def other_adapters(self, adapters: AdapterSet) -> AdapterSet:
        """The same stores as another process has them."""
        return adapters

    @pytest.fixture
    def lease_unit(self) -> timedelta:
        """After so long without renewal the leases of lost workers end in the tests."""
        return timedelta(milliseconds=20)

    @pytest.fixture
    def pass_time(self) -> PassTime:
        """Lets time pass on the transport's clock; sleeps by default."""

        async def sleep(time: timedelta) -> None:
            await asyncio.sleep(time.total_seconds())

        return sleep

    @pytest.fixture
    def clock_now(self) -> Callable[[], datetime]:
        """The clock that the kernels begin with; this machine's by default."""
        return lambda: datetime.now(UTC)

    @pytest.fixture
    def deployment(
        self,
        adapters: AdapterSet,
        other_adapters: AdapterSet,
        clock_now: Callable[[], datetime],
        pass_time: PassTime,
        lease_unit: timedelta,
    ) -> Deployment:
        """Kernels over both handles."""
        memory = _in_memory(MovingClock(clock_now))
        handles = (_completed(adapters, memory), _completed(other_adapters, memory))
        return Deployment(
            handles=handles, clock=MovingClock(clock_now), pass_time=pass_time, lease_unit=lease_unit
        )


def _in_memory(clock: Clock) -> AdapterSet:
    database = InMemoryDatabase(clock)
    persistence = InMemoryPersistence(database)
    return AdapterSet(
        persistence=persistence,
        job_transport=InMemoryJobTransport(database),
        step_ledger=InMemoryStepLedger(database),
        blob_store=InMemoryBlobStore(database),
        run_reader=persistence,
    )


def _completed(given: AdapterSet, memory: AdapterSet) -> AdapterSet:
    """The adapters that were given, and those of `memory` in the place of missing ones."""
    if given.persistence is not None and given.run_reader is None:
        memory = replace(
            memory, run_reader=None
        )  # the persistence reads its own runs, or the kernel refuses it
    missing = [one.name for one in fields(given) if getattr(given, one.name) is None]
    return replace(given, **{name: getattr(memory, name) for name in missing})
