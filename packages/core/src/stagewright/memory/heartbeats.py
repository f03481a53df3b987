"""Renewing leases from threads, past event loops that are busy."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from stagewright.memory.database import InMemoryDatabase
from stagewright.memory.rows import JobRow
from stagewright.memory.transaction import Transaction
from stagewright.ports.clock import Clock
from stagewright.records import Fence, HeldLease, JobRecord
from stagewright.status import Status

__all__ = ["InMemoryHeartbeats", "owns"]


class InMemoryHeartbeats:
    """A `HeartbeatChannel` over an in-memory database.

    Args:
        database: The database.
        clock: By which leases are stamped.
    """

    def __init__(self, database: InMemoryDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._turn = threading.Lock()
        self._closed = False

    def renew_many(self, leases: Sequence[HeldLease]) -> list[bool]:
        """Renew leases; where a delivery doesn't own its job any more, the answer is False."""
        _refuse_event_loop()
        with self._turn:
            if self._closed:
                raise RuntimeError("this heartbeat channel is closed; open another one")
            return self._renew(leases)

    def close(self) -> None:
        """Renew nothing any more."""
        with self._turn:
            self._closed = True

    def _renew(self, leases: Sequence[HeldLease]) -> list[bool]:
        tx = Transaction(self._database)
        try:
            now = self._clock.now()
            answers = [self._touch(tx, lease, now) for lease in leases]
        except BaseException:
            tx.roll_back()
            raise
        tx.commit()
        return answers

    def _touch(self, tx: Transaction, lease: HeldLease, now: datetime) -> bool:
        jobs = self._database.jobs

        def is_owned(row: JobRow) -> bool:
            return row.record.id == lease.job_id and owns(row.record, lease.fence)

        found = tx.first(jobs, "id", lease.job_id)
        if found is None:
            return False
        for row in tx.skip_locked(jobs, (jobs.key(found),), is_owned):
            tx.put(jobs, replace(row, record=replace(row.record, locked_at=now)))
        current = tx.get(jobs, jobs.key(found))
        return current is not None and is_owned(current)


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("an event loop runs in this thread; renew leases from a thread of its own")


def owns(job: JobRecord, fence: Fence) -> bool:
    """Whether this delivery owns the job."""
    return (
        job.status is Status.RUNNING
        and job.started_at == fence.started_at
        and job.deliveries == fence.deliveries
    )
