"""One transaction of the kernel, with what belongs to it: events, jobs, wake-ups and work for after the commit."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar, cast

from stagewright.errors import AfterCommitError, StaleVersionError, TransientError
from stagewright.events import Event, event_payload
from stagewright.kernel.context import KernelPorts
from stagewright.ports import Enlistable, JobTransport, Persistence, WorkNotifier
from stagewright.records import NewEvent, NewJob, StagePatch

__all__ = ["UnitOfWork", "in_transaction"]

R = TypeVar("R")
_TRIES: Final = 3


class _FetchOutside(BaseException):
    """Ends a transaction that needs something slow, so that it is fetched with no transaction open.

    It is no `Exception`, so that a handler that goes on after a failure lets it pass.
    """

    def __init__(self, missing: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
        super().__init__(*missing)
        self.missing = missing


@dataclass(slots=True)
class _Outbox:
    events: list[Event] = field(default_factory=list)
    jobs: list[tuple[NewJob, str]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    after_commit: list[Callable[[], Awaitable[object]]] = field(default_factory=list)


class UnitOfWork:
    """What a handler works with inside its one transaction.

    Events, jobs and wake-ups are collected and written together at the end, so that a rollback takes them along.

    Attributes:
        ports: The kernel's ports, outside the transaction.
        tx: The persistence, inside the transaction.
        jobs: The job transport inside the transaction, or None if it can't take part.
        now: The time of this transaction, the same for all that it writes.
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

    def emit(self, event: Event) -> None:
        """Report an event, once this transaction has committed."""
        self._collected.events.append(event)

    def enqueue(self, job: NewJob, *, stage_record_id: str) -> None:
        """Make a job claimable: in this transaction where the transport enlists, else after its commit."""
        self._collected.jobs.append((job, stage_record_id))

    def notify(self, topic: str) -> None:
        """Wake waiting hosts, once this transaction has committed."""
        if topic not in self._collected.topics:
            self._collected.topics.append(topic)

    def after_commit(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do something once this transaction has committed, and not if it doesn't."""
        self._collected.after_commit.append(work)

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
        outer, collected = (self.tx, self.jobs), self._collected
        self._collected = _Outbox()
        try:
            async with self.tx.transaction() as inner:
                self.tx, self.jobs = inner, self._enlisted(inner)
                yield
        except BaseException:
            self._collected = collected
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
        left = list(collected.after_commit)
        if collected.jobs and self.jobs is not None:
            await self.jobs.enqueue_parallel([job for job, _ in collected.jobs])
        elif collected.jobs:
            left += self._enqueue_by_run()
        if collected.events:
            await self.tx.append_outbox_events([self._row(event) for event in collected.events])
        if self.ports.notifies:
            for topic in collected.topics:
                await cast(WorkNotifier, self.tx).notify(topic)
        return left

    def _enlisted(self, tx: Persistence) -> JobTransport | None:
        if not self.ports.transport_enlists:
            return None
        return cast(JobTransport, cast(Enlistable, self.ports.job_transport).enlist(tx))

    def _enqueue_by_run(self) -> list[Callable[[], Awaitable[object]]]:
        by_run: dict[str, list[tuple[NewJob, str]]] = {}
        for job, stage_record_id in self._collected.jobs:
            by_run.setdefault(job.run_id, []).append((job, stage_record_id))
        return [_enqueueing(self.ports, jobs) for jobs in by_run.values()]

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

    A stale version, or a store that couldn't do it this time, starts it over in a new transaction, three times in all.
    So does something slow that it asked to have fetched; the work must bear that.

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
        except (StaleVersionError, TransientError):
            conflicts += 1
            if conflicts >= _TRIES:
                raise
            continue
        except _FetchOutside as needed:
            for key, fetch in needed.missing.items():
                fetched[key] = await fetch()
            continue
        await _run_all(left)
        return result


async def _run_all(left: list[Callable[[], Awaitable[object]]]) -> None:
    failures: list[Exception] = []
    for work in left:
        try:
            await work()
        except Exception as error:
            failures.append(error)
    if failures:
        raise AfterCommitError(len(left), tuple(failures)) from failures[0]


def _enqueueing(ports: KernelPorts, jobs: list[tuple[NewJob, str]]) -> Callable[[], Awaitable[object]]:
    async def enqueue() -> None:
        await ports.job_transport.enqueue_parallel([job for job, _ in jobs])
        now = ports.clock.now()
        for _, stage_record_id in jobs:
            await ports.persistence.update_stage(
                stage_record_id, StagePatch(updated_at=now, job_enqueued_at=now)
            )

    return enqueue
