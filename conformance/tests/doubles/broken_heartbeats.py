"""Job transports whose heartbeats have one clause broken; collected by an inner run alone."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

from stagewright.memory import InMemoryJobTransport
from stagewright.memory.heartbeats import InMemoryHeartbeats
from stagewright.records import Fence, HeldLease
from stagewright.status import Status
from stagewright_conformance import HeartbeatSuite
from stagewright_test_support.doubles import TransportDoubles


class NeedsTheLoop(InMemoryJobTransport):
    """Renewing is asked of the event loop that opened the channel."""

    def open_heartbeats(self) -> InMemoryHeartbeats | None:
        transport, loop = self, asyncio.get_running_loop()

        class Channel(InMemoryHeartbeats):
            def _renew(self, leases: Sequence[HeldLease]) -> list[bool]:
                touched = [transport.touch(lease.job_id, lease.fence) for lease in leases]

                async def together() -> list[bool]:
                    return list(await asyncio.gather(*touched))

                return asyncio.run_coroutine_threadsafe(together(), loop).result(10)

        return Channel(self._database, self._clock)


class TestNeedsTheLoop(TransportDoubles, HeartbeatSuite):
    double = NeedsTheLoop


class AnswersAsItLikes(InMemoryJobTransport):
    """The answers come in the order of the jobs' ids."""

    def open_heartbeats(self) -> InMemoryHeartbeats | None:
        class Channel(InMemoryHeartbeats):
            def _renew(self, leases: Sequence[HeldLease]) -> list[bool]:
                answers = zip((lease.job_id for lease in leases), super()._renew(leases), strict=True)
                return [answer for _, answer in sorted(answers)]

        return Channel(self._database, self._clock)


class TestAnswersAsItLikes(TransportDoubles, HeartbeatSuite):
    double = AnswersAsItLikes


class BeatsForAnybody(InMemoryJobTransport):
    """Whoever knows a job's id renews its lease."""

    def open_heartbeats(self) -> InMemoryHeartbeats | None:
        jobs = self._database.jobs

        class Channel(InMemoryHeartbeats):
            def _renew(self, leases: Sequence[HeldLease]) -> list[bool]:
                real = []
                for lease in leases:
                    row = next((row for row in jobs.all().values() if row.record.id == lease.job_id), None)
                    if row is not None and row.record.started_at is not None:
                        fence = Fence(started_at=row.record.started_at, deliveries=row.record.deliveries)
                        lease = HeldLease(lease.job_id, fence)
                    real.append(lease)
                return super()._renew(real)

        return Channel(self._database, self._clock)


class TestBeatsForAnybody(TransportDoubles, HeartbeatSuite):
    double = BeatsForAnybody


class BeatsForWaitingJobs(InMemoryJobTransport):
    """A job that was given back counts as owned."""

    def open_heartbeats(self) -> InMemoryHeartbeats | None:
        jobs = self._database.jobs

        class Channel(InMemoryHeartbeats):
            def _renew(self, leases: Sequence[HeldLease]) -> list[bool]:
                pending = {row.record.id for row in jobs.where("status", Status.PENDING).values()}
                answers = super()._renew(leases)
                return [
                    owned or lease.job_id in pending for lease, owned in zip(leases, answers, strict=True)
                ]

        return Channel(self._database, self._clock)


class TestBeatsForWaitingJobs(TransportDoubles, HeartbeatSuite):
    double = BeatsForWaitingJobs


class EndsLeasesWhenItCloses(InMemoryJobTransport):
    """Closing a channel gives back what it had renewed."""

    def open_heartbeats(self) -> InMemoryHeartbeats | None:
        jobs = self._database.jobs

        class Channel(InMemoryHeartbeats):
            def close(self) -> None:
                super().close()
                for key, row in jobs.where("status", Status.RUNNING).items():
                    jobs.write(key, replace(row, record=replace(row.record, status=Status.PENDING)))

        return Channel(self._database, self._clock)


class TestEndsLeasesWhenItCloses(TransportDoubles, HeartbeatSuite):
    double = EndsLeasesWhenItCloses


class UsesOneConnectionAtOnce(InMemoryJobTransport):
    """A second thread that renews meanwhile is an error."""

    def open_heartbeats(self) -> InMemoryHeartbeats | None:
        arrived = threading.Barrier(2)

        class Channel(InMemoryHeartbeats):
            def renew_many(self, leases: Sequence[HeldLease]) -> list[bool]:
                try:
                    arrived.wait(0.1)
                except threading.BrokenBarrierError:
                    arrived.reset()
                    return super().renew_many(leases)
                raise RuntimeError("another operation is in progress")

        return Channel(self._database, self._clock)


class TestUsesOneConnectionAtOnce(TransportDoubles, HeartbeatSuite):
    double = UsesOneConnectionAtOnce
