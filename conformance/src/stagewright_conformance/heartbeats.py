"""Renewing leases from threads, past a blocked event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest
import pytest_asyncio

from stagewright.ports import HeartbeatChannel, JobTransport, OpensHeartbeats
from stagewright.records import DequeuedJob, Fence, HeldLease
from stagewright.status import Status
from stagewright_conformance.job_transport import JobTransportSuite, PassTime
from stagewright_conformance.samples import a_job
from stagewright_conformance.suite import Scale

__all__ = ["HeartbeatSuite"]

T = TypeVar("T")


def _opened(transport: JobTransport) -> HeartbeatChannel:
    assert isinstance(transport, OpensHeartbeats)
    channel = transport.open_heartbeats()
    assert channel is not None
    return channel


def _lease(job: DequeuedJob) -> HeldLease:
    return HeldLease(job.job_id, job.fence)


def _while_the_loop_is_blocked(work: Callable[[], T], patience: float) -> T:
    """What `work` gives in a thread of its own, during which this thread, and its event loop, does nothing."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(patience)
    assert results, "renewing needs the caller's event loop, or failed"
    return results[0]


@pytest.mark.needs("heartbeats")
class HeartbeatSuite(JobTransportSuite):
    """`HeartbeatChannel`: leases are renewed whatever the event loop is busy with.

    Fixtures: those of `JobTransportSuite`; the transport is an `OpensHeartbeats` whose channel isn't None.
    """

    @pytest_asyncio.fixture
    async def channel(self, transport: JobTransport) -> AsyncIterator[HeartbeatChannel]:
        """A channel of the transport, closed after the test."""
        channel = _opened(transport)
        yield channel
        await asyncio.to_thread(channel.close)

    @pytest.mark.guarantee("stores.heartbeats-outlive-a-blocked-loop")
    async def test_leases_are_renewed_while_the_event_loop_is_blocked(
        self,
        transport: JobTransport,
        channel: HeartbeatChannel,
        pass_time: PassTime,
        lease_unit: timedelta,
        scale: Scale,
    ) -> None:
        """`HeartbeatChannel`: whatever the event loops of the process are busy with."""
        kept, lost = a_job(), a_job()
        mine = await self.deliver(transport, kept, "blocked worker")
        await self.deliver(transport, lost, "lost worker")
        await pass_time(3 * lease_unit)
        assert _while_the_loop_is_blocked(lambda: channel.renew_many([_lease(mine)]), scale.patience) == [
            True
        ]
        sweep = await transport.release_stale(2 * lease_unit)
        assert [job.id for job in sweep.released] == [lost.id]
        assert (await self.job(transport, kept)).status is Status.RUNNING

    async def test_renewing_changes_the_lease_and_nothing_else(
        self, transport: JobTransport, channel: HeartbeatChannel, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`renew_many`: as `JobLeases.touch` does; the fence stays valid."""
        job = a_job()
        taken = await self.deliver(transport, job)
        before = await self.job(transport, job)
        await pass_time(lease_unit)
        assert await asyncio.to_thread(channel.renew_many, [_lease(taken)]) == [True]
        after = await self.job(transport, job)
        assert before.locked_at is not None
        assert after.locked_at is not None
        assert after.locked_at - before.locked_at >= lease_unit / 2
        assert replace(after, locked_at=before.locked_at) == before
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"

    async def test_answers_come_in_the_order_given(
        self, transport: JobTransport, channel: HeartbeatChannel
    ) -> None:
        """`renew_many`: for each lease, in the order given, whether its delivery still owns the job."""
        jobs = [a_job() for _ in range(9)]
        leases = [_lease(await self.deliver(transport, job)) for job in jobs]
        for number in (1, 4):
            await transport.complete(leases[number].job_id, leases[number].fence)
        unknown = HeldLease("no such job", leases[0].fence)
        asked = [*reversed(leases), unknown, leases[0]]
        answers = await asyncio.to_thread(channel.renew_many, asked)
        assert answers == [True, True, True, True, False, True, True, False, True, False, True]
        assert await asyncio.to_thread(channel.renew_many, []) == []

    async def test_a_delivery_that_lost_its_job_renews_nothing(
        self, transport: JobTransport, channel: HeartbeatChannel, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`renew_many`: where the delivery doesn't own the job any more, nothing is written."""
        job = a_job()
        old = await self.deliver(transport, job)
        await pass_time(2 * lease_unit)
        await transport.release_stale(lease_unit)
        [new] = await transport.dequeue(worker_id="other")
        kept = await self.job(transport, job)
        halves = [
            HeldLease(old.job_id, Fence(started_at=new.fence.started_at, deliveries=old.fence.deliveries)),
            HeldLease(old.job_id, Fence(started_at=old.fence.started_at, deliveries=new.fence.deliveries)),
        ]
        await pass_time(lease_unit)
        answers = await asyncio.to_thread(channel.renew_many, [_lease(old), *halves])
        assert answers == [False, False, False]
        assert await self.job(transport, job) == kept
        assert await asyncio.to_thread(channel.renew_many, [_lease(new)]) == [True]

    async def test_a_job_given_back_is_not_renewed(
        self, transport: JobTransport, channel: HeartbeatChannel
    ) -> None:
        """`renew_many`: a job that is PENDING again belongs to nobody."""
        job = a_job()
        taken = await self.deliver(transport, job)
        await transport.fail(taken.job_id, "no", retry=True, fence=taken.fence)
        pending = await self.job(transport, job)
        assert await asyncio.to_thread(channel.renew_many, [_lease(taken)]) == [False]
        assert await self.job(transport, job) == pending

    async def test_several_threads_may_use_one_channel(
        self, transport: JobTransport, channel: HeartbeatChannel, scale: Scale
    ) -> None:
        """`HeartbeatChannel`: calls from several threads wait for each other."""
        taken = [await self.deliver(transport, a_job()) for _ in range(scale.contenders)]
        beats = [asyncio.to_thread(channel.renew_many, [_lease(job)]) for job in taken]
        assert await scale.soon(asyncio.gather(*beats)) == [[True]] * len(taken)

    async def test_a_channel_is_not_for_the_thread_of_an_event_loop(
        self, transport: JobTransport, channel: HeartbeatChannel
    ) -> None:
        """`renew_many`: `RuntimeError` if an event loop runs in the calling thread."""
        taken = await self.deliver(transport, a_job())
        with pytest.raises(RuntimeError, match="event loop"):
            channel.renew_many([_lease(taken)])

    async def test_closing_ends_the_channel_and_no_lease(self, transport: JobTransport) -> None:
        """`close`: no lease is changed by it, closing again does nothing, and the channel is of no use then."""
        job = a_job()
        taken = await self.deliver(transport, job)
        closed, other = _opened(transport), _opened(transport)
        assert await asyncio.to_thread(closed.renew_many, [_lease(taken)]) == [True]
        await asyncio.to_thread(closed.close)
        await asyncio.to_thread(closed.close)
        with pytest.raises(RuntimeError, match="closed"):
            await asyncio.to_thread(closed.renew_many, [_lease(taken)])
        assert (await self.job(transport, job)).status is Status.RUNNING
        assert await asyncio.to_thread(other.renew_many, [_lease(taken)]) == [True]
        await asyncio.to_thread(other.close)
