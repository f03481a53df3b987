"""One transaction of the kernel, with what belongs to it: events, jobs, wake-ups and work for after the commit."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast

from stagewright.errors import (
    AfterCommitError,
    DeadlockError,
    StaleVersionError,
    TransientError,
)
from stagewright.events import Event, event_payload
from stagewright.json_values import Json
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.wanted_jobs import WantedJob, claimable, enqueueing, resuming
from stagewright.ports import DeliversAtOnce, Enlistable, JobTransport, Persistence, StepLedger, WorkNotifier
from stagewright.records import (
    ClaimCheck,
    DequeuedJob,
    LoadedRun,
    NewEvent,
    NewJob,
    RunRecord,
    StagePatch,
    group_of,
)
from stagewright.runtime.claim_check import encoded, put_spilled
from stagewright.runtime.job_payloads import CLAIM_SIZE, payload_key, with_claim
from stagewright.status import TERMINAL_RUN_STATUSES

__all__ = ["UnitOfWork", "in_transaction"]

R = TypeVar("R")
_TRIES: Final = 3
# Who is chosen to end a deadlock has done nothing wrong, and may be chosen again while the others go on.
_DEADLOCK_TRIES: Final = 8
_NOT_REPEATED: Final = (
    "nothing of this command is left in your transaction, in which it was not tried again: roll your transaction back "
    "and do all of it anew"
)


class _FetchOutside(BaseException):
    """Ends a transaction that needs something slow, so that it is fetched with no transaction open.

    It is no `Exception`, so that a handler that goes on after a failure lets it pass.
    """

    def __init__(self, missing: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        super().__init__(*missing)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class _HandedOver:
    """A job for the worker that asked for this transaction, and its run as the handler leaves it."""

    job: NewJob
    payload: dict[str, Json]
    loaded: LoadedRun | None


@dataclass(slots=True)
class _Outbox:
    events: list[Event] = field(default_factory=list)
    jobs: list[WantedJob] = field(default_factory=list)
    resumed: list[WantedJob] = field(default_factory=list)
    handed_over: list[_HandedOver] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    after_commit: list[Callable[[], Awaitable[object]]] = field(default_factory=list)
    sweeps: list[Callable[[], Awaitable[object]]] = field(default_factory=list)


class UnitOfWork:
    """What a handler works with inside its one transaction.

    Events, jobs and wake-ups are collected and written together at the end, so that a rollback takes them along.

    Attributes:
        ports: The kernel's ports, outside the transaction.
        tx: The persistence, inside the transaction.
        jobs: The job transport inside the transaction, or None if it can't take part.
        now: The time of this transaction, the same for all that it writes.
        delivered: Jobs that the worker of `hand_over_to` has once this transaction has committed.
    """

    def __init__(
        self,
        ports: KernelPorts,
        tx: Persistence,
        *,
        now: datetime,
        causation_id: str,
        fetched: dict[str, object],
    ) -> None:
        self.ports = ports
        self.now = now
        self.tx = tx
        self.jobs = self._enlisted(tx)
        self._causation_id = causation_id
        self._fetched = fetched
        self._collected = _Outbox()
        self._wakes_for_jobs = True
        self._taker = ""
        self._room = 0
        # Any: of the result that the command's handler gives
        self._amended: Callable[[Any, tuple[DequeuedJob, ...]], Any] | None = None
        self.delivered: tuple[DequeuedJob, ...] = ()

    @property
    def ledger(self) -> StepLedger | None:
        """The step ledger inside the transaction, or None if there is none or it can't take part."""
        if not self.ports.ledger_enlists:
            return None
        return cast(StepLedger, cast(Enlistable, self.ports.step_ledger).enlist(self.tx))

    def emit(self, event: Event) -> None:
        """Report an event, once this transaction has committed."""
        self._collected.events.append(event)

    def enqueue(self, job: NewJob, *, stage_record_id: str, version: int) -> None:
        """Make a job claimable: in this transaction where the transport enlists, else after its commit.

        Args:
            job: The job.
            stage_record_id: The stage, whose `job_enqueued_at` is None until a transport elsewhere has the job.
            version: The version that the stage's row has when this transaction has committed.
        """
        self._collected.jobs.append(WantedJob(job, stage_record_id, version))

    def resume(self, job: NewJob, *, stage_record_id: str, version: int) -> None:
        """Make the job of a stage that goes on claimable unless it is: in this transaction, else after its commit.

        Args:
            job: The job, as it is enqueued if the stage has none.
            stage_record_id: The stage, whose `job_enqueued_at` is None until the transport has the job.
            version: The version that the stage's row has when this transaction has committed.
        """
        self._collected.resumed.append(WantedJob(job, stage_record_id, version))

    def notify(self, topic: str) -> None:
        """Wake waiting hosts, once this transaction has committed."""
        if topic not in self._collected.topics:
            self._collected.topics.append(topic)

    def leave_waking_to_caller(self) -> None:
        """Wake nobody for jobs that this transaction enqueues: its caller claims next, and tells of what it leaves."""
        # Where jobs are elsewhere, they come after the commit, and whoever asked for them may be gone by then.
        self._wakes_for_jobs = self.jobs is None or self.ports.is_borrowed

    def hand_over_to(self, worker_id: str, *, at_most: int) -> None:
        """Let a worker have the next jobs of this transaction at once, if the transport can do so."""
        if self.ports.delivers_at_once and not self.ports.is_borrowed:
            self._taker, self._room = worker_id, at_most

    @property
    def leaves_jobs(self) -> bool:
        """Whether there are jobs for whoever claims them."""
        return bool(self._collected.jobs or self._collected.resumed)

    def has_room_for(self, more: int) -> bool:
        """Whether another job is handed over beside so many that will be; its stage has to be started here."""
        return self._room > more

    def hand_over(self, job: NewJob, loaded: LoadedRun | None) -> None:
        """Enqueue the job of a stage that was started here, for the worker that takes it.

        Args:
            job: The job.
            loaded: Its run as this transaction leaves it, but for the events, or None if that isn't known.
        """
        self._room -= 1
        self._collected.handed_over.append(_HandedOver(job, job.payload, loaded))

    def amend(self, amended: Callable[[R, tuple[DequeuedJob, ...]], R]) -> None:
        """Put the jobs that were handed over into the command's result, once this transaction has committed."""
        self._amended = amended

    def result_of(self, result: R) -> R:
        """A command's result, as it is told once this transaction has committed."""
        if self._amended is None or not self.delivered:
            return result
        return cast(R, self._amended(result, self.delivered))

    def note_held(self, run: RunRecord) -> None:
        """Wake hosts at the commit if this transaction, which opens no work itself, holds a run that has some.

        A claim passes over rows that somebody holds, and nobody else would have it look again soon.
        """
        if run.status not in TERMINAL_RUN_STATUSES:
            self.notify("runs")

    def after_commit(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do something once this transaction has committed, and not if it doesn't."""
        self._collected.after_commit.append(work)

    def sweep(self, work: Callable[[], Awaitable[object]]) -> None:
        """Delete from the blob store: once this has committed, or in the caller's transaction, together with the rest.

        A blob store that can't take part in the caller's transaction keeps what it has; a purge of the run removes it.
        """
        self._collected.sweeps.append(work)

    def fetched(self, key: str, fetch: Callable[[], Awaitable[R]]) -> R:
        """What `fetch` gives, fetched while no transaction is open: the first call starts the transaction over."""
        return self.all_fetched({key: fetch})[key]

    def all_fetched(self, fetches: Mapping[str, Callable[[], Awaitable[R]]]) -> dict[str, R]:
        """Like `fetched`, for several values at once: together they start the transaction over once."""
        missing = {key: fetch for key, fetch in fetches.items() if key not in self._fetched}
        if missing:
            raise _FetchOutside(missing)
        return {key: cast(R, self._fetched[key]) for key in fetches}

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Undo what the block wrote and collected when it raises, and nothing else."""
        outer, collected, room = (self.tx, self.jobs), self._collected, self._room
        self._collected = _Outbox()
        try:
            async with self.tx.transaction() as inner:
                self.tx, self.jobs = inner, self._enlisted(inner)
                yield
        except BaseException:
            self._collected, self._room = collected, room
            raise
        else:
            inside, self._collected = self._collected, collected
            for name in _Outbox.__slots__:
                getattr(collected, name).extend(getattr(inside, name))
        finally:
            self.tx, self.jobs = outer

    async def finish(self) -> list[Callable[[], Awaitable[object]]]:
        """Write what was collected, and return what is left to do after the commit."""
        collected = self._collected
        self._spill_payloads()
        left = [*collected.after_commit, *collected.sweeps]
        if collected.handed_over:
            # First, for a job that loses its worker then keeps its place before its siblings.
            self.delivered = await self._deliver()
        if collected.jobs and self.jobs is not None:
            await self.jobs.enqueue_parallel([wanted.job for wanted in collected.jobs])
        elif collected.jobs:
            left += self._enqueue_by_run()
        if collected.resumed and self.jobs is not None:
            for wanted in await claimable(self.jobs, collected.resumed):
                patch = StagePatch(updated_at=self.now, job_enqueued_at=self.now)
                await self.tx.update_stage(wanted.stage_record_id, patch)
        elif collected.resumed:
            left.append(resuming(self.ports, collected.resumed))
        if collected.events:
            await self.tx.append_outbox_events([self._row(event) for event in collected.events])
        if self.ports.notifies:
            for topic in collected.topics:
                if topic != "jobs" or self._wakes_for_jobs:
                    await cast(WorkNotifier, self.tx).notify(topic)
        if not self.ports.is_borrowed:
            return left
        if self.ports.blobs_enlist:
            for sweep in collected.sweeps:
                await sweep()
        # Whether and when the caller commits isn't known here: upkeep does what is left, as it does after a crash.
        return []

    async def _deliver(self) -> tuple[DequeuedJob, ...]:
        handed_over = self._collected.handed_over
        jobs = await cast(DeliversAtOnce, self.jobs).enqueue_delivered(
            [one.job for one in handed_over], worker_id=self._taker
        )
        return tuple(
            replace(job, payload=one.payload, loaded=self._with_events(one.loaded))
            for job, one in zip(jobs, handed_over, strict=True)
        )

    def _with_events(self, loaded: LoadedRun | None) -> LoadedRun | None:
        """A run after all the events of this transaction."""
        if loaded is None:
            return None
        events = sum(event.run_id == loaded.run.id for event in self._collected.events)
        return replace(loaded, last_sequence=loaded.last_sequence + events)

    def _spill_payloads(self) -> None:
        """Put claim checks in the place of large payloads, whose blobs are written with no transaction open."""
        # A claim check in the place of something smaller than itself would be no gain.
        limit = max(self.ports.settings.spill_threshold_bytes, CLAIM_SIZE)
        collected = self._collected
        large: dict[str, str] = {}
        stores: dict[str, Callable[[], Awaitable[ClaimCheck]]] = {}
        jobs = [one.job for one in (*collected.jobs, *collected.resumed)]
        jobs += [one.job for one in collected.handed_over]
        for job in jobs:
            data = encoded(job.payload)
            if len(data) > limit:
                key = large[job.id] = payload_key(job, data)
                stores[key] = partial(put_spilled, self.ports.blob_store, key, data)
        if not large:
            return
        claims = self.all_fetched(stores)

        def small(job: NewJob) -> NewJob:
            key = large.get(job.id)
            if key is None:
                return job
            # Where the group is told by the payload, nobody can tell it from a claim check.
            group_key = group_of(job, self.ports.fairness)
            return replace(job, payload=with_claim(claims[key]), group_key=group_key)

        collected.jobs[:] = [replace(wanted, job=small(wanted.job)) for wanted in collected.jobs]
        collected.resumed[:] = [replace(wanted, job=small(wanted.job)) for wanted in collected.resumed]
        collected.handed_over[:] = [replace(one, job=small(one.job)) for one in collected.handed_over]

    def _enlisted(self, tx: Persistence) -> JobTransport | None:
        if not self.ports.transport_enlists:
            return None
        return cast(JobTransport, cast(Enlistable, self.ports.job_transport).enlist(tx))

    def _enqueue_by_run(self) -> list[Callable[[], Awaitable[object]]]:
        by_run: dict[str, list[WantedJob]] = {}
        for wanted in self._collected.jobs:
            by_run.setdefault(wanted.job.run_id, []).append(wanted)
        return [enqueueing(self.ports, all_wanted) for all_wanted in by_run.values()]

    def _row(self, event: Event) -> NewEvent:
        return NewEvent(
            id=self.ports.ids.new_id(),
            run_id=event.run_id,
            type=event.type,
            payload=event_payload(event),
            occurred_at=event.timestamp,
            causation_id=self._causation_id,
        )


async def in_transaction(
    ports: KernelPorts, work: Callable[[UnitOfWork], Awaitable[R]], *, causation_id: str | None = None
) -> R:
    """Run `work` in a transaction of its own, then what it left for after the commit.

    A stale version, or a store that couldn't do it this time, starts it over in a new transaction, three times in all;
    a deadlock does so up to eight times.
    So does something slow that it asked to have fetched; the work must bear that. In the caller's transaction the work
    runs in a savepoint, and only what it asked to have fetched starts it over.

    Raises:
        AfterCommitError: If the transaction has committed and something that was to follow failed.
    """
    causation = causation_id or ports.ids.new_id()
    fetched: dict[str, object] = {}
    conflicts = 0
    while True:
        try:
            async with ports.persistence.transaction() as tx:
                unit = UnitOfWork(ports, tx, now=ports.clock.now(), causation_id=causation, fetched=fetched)
                result = await work(unit)
                left = await unit.finish()
        except (StaleVersionError, TransientError) as error:
            if ports.is_borrowed:
                error.add_note(_NOT_REPEATED)
                raise
            conflicts += 1
            if conflicts >= (_DEADLOCK_TRIES if isinstance(error, DeadlockError) else _TRIES):
                raise
            continue
        except _FetchOutside as needed:
            for key, fetch in needed.missing.items():
                fetched[key] = await fetch()
            continue
        try:
            await _run_all(left)
        except AfterCommitError:
            await _give_back(ports, unit.delivered)
            raise
        return unit.result_of(result)


async def _give_back(ports: KernelPorts, jobs: Sequence[DequeuedJob]) -> None:
    """Let others have jobs that the caller, who is told of an error, doesn't get to know of."""
    for job in jobs:
        # If it can't be done, the job's lease ends by itself.
        with suppress(Exception):
            reason = "handed back: its worker was not told of it"
            await ports.job_transport.defer(job.job_id, ports.clock.now(), reason, job.fence)


async def _run_all(left: list[Callable[[], Awaitable[object]]]) -> None:
    failures: list[Exception] = []
    for work in left:
        try:
            await work()
        except Exception as error:
            failures.append(error)
    if failures:
        raise AfterCommitError(len(left), tuple(failures)) from failures[0]
