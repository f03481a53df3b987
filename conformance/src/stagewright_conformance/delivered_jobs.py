"""Jobs that their worker has from the moment they are there."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from stagewright.ports import DeliversAtOnce, JobTransport, OpensHeartbeats
from stagewright.records import DequeuedJob, Fence, HeldLease, NewJob
from stagewright.status import Status
from stagewright_conformance.job_transport import JobTransportSuite, PassTime
from stagewright_conformance.samples import ODD_JSON, a_job, exactly, new_id
from stagewright_conformance.suite import Scale

__all__ = ["DeliveredJobSuite", "delivered"]


async def delivered(
    transport: JobTransport, *jobs: NewJob, worker_id: str = "worker"
) -> Sequence[DequeuedJob]:
    """Enqueue jobs that this worker has already."""
    assert isinstance(transport, DeliversAtOnce), "the transport is no DeliversAtOnce"
    return await transport.enqueue_delivered(jobs, worker_id=worker_id)


@pytest.mark.needs("delivers_at_once")
class DeliveredJobSuite(JobTransportSuite):
    """`DeliversAtOnce`: jobs are enqueued and delivered in one step.

    Fixtures: those of `JobTransportSuite`; the transport is a `DeliversAtOnce`.
    """

    async def test_a_job_is_running_under_its_worker_from_the_start(
        self, transport: JobTransport, clock_now: Callable[[], datetime], lease_unit: timedelta
    ) -> None:
        """`enqueue_delivered`: RUNNING with one delivery and a lease that begins now."""
        job = a_job(definition_version="v1", priority=7, payload={"odd": ODD_JSON}, max_worker_losses=4)
        begun = clock_now()
        [taken] = await delivered(transport, job, worker_id="worker 1")
        kept = await self.job(transport, job)
        assert (kept.id, kept.run_id, kept.workflow_id, kept.stage_id) == (
            job.id,
            job.run_id,
            "orders",
            "price",
        )
        assert (kept.definition_version, kept.priority, kept.max_worker_losses) == ("v1", 7, 4)
        assert (kept.status, kept.worker_id, kept.deliveries) == (Status.RUNNING, "worker 1", 1)
        assert (kept.failures, kept.worker_losses, kept.interruptions) == (0, 0, 0)
        assert (kept.completed_at, kept.due_at, kept.last_error) == (None, None, None)
        assert exactly(kept.payload) == exactly({"odd": ODD_JSON})
        assert kept.locked_at is not None
        for moment in (kept.locked_at, taken.fence.started_at):
            assert begun - lease_unit <= moment <= clock_now() + lease_unit

    async def test_a_delivery_is_answered_as_a_claim_answers_it(self, transport: JobTransport) -> None:
        """`enqueue_delivered`: each with the fence of this delivery, and all else that `dequeue` says of a job."""
        job = a_job(definition_version="v1", priority=7, payload={"odd": ODD_JSON}, max_worker_losses=4)
        await transport.enqueue_parallel([job])
        [claimed] = await transport.dequeue(worker_id="worker 1")
        [taken] = await delivered(transport, job, worker_id="worker 1")
        assert replace(taken, fence=claimed.fence, payload={}) == replace(claimed, payload={})
        assert exactly(taken.payload) == exactly(claimed.payload)
        assert taken.fence.started_at.utcoffset() == timedelta(0)
        kept = await self.job(transport, job)
        assert (taken.fence.started_at, taken.fence.deliveries) == (kept.started_at, 1)

    async def test_a_payload_is_the_callers_own(self, transport: JobTransport) -> None:
        """`NewJob.payload`: changing it after it went in or came out changes nothing in the store."""
        job = a_job(payload={"list": [1]})
        [taken] = await delivered(transport, job)
        job.payload["list"] = 2
        taken.payload["more"] = 4
        assert (await self.job(transport, job)).payload == {"list": [1]}

    async def test_jobs_are_answered_in_the_order_given(self, transport: JobTransport) -> None:
        """`enqueue_delivered`: the jobs, in the order given; nothing for nothing."""
        run_id = new_id("run")
        jobs = [a_job(run_id, stage_id=stage, priority=n) for n, stage in enumerate("cab")]
        taken = await delivered(transport, *jobs)
        assert [each.job_id for each in taken] == [job.id for job in jobs]
        assert [each.stage_id for each in taken] == ["c", "a", "b"]
        assert {job.id for job in await transport.get_jobs_by_run(run_id)} == {job.id for job in jobs}
        for each in taken:
            assert await transport.complete(each.job_id, each.fence) == "acknowledged"
        assert await delivered(transport) == []

    @pytest.mark.guarantee("stores.delivered-at-once-is-one-workers")
    async def test_it_is_nobody_elses(self, transport: JobTransport, rival_transport: JobTransport) -> None:
        """`enqueue_delivered`: it is nobody else's at any time, and passes those that wait."""
        waiting, job = a_job(priority=9), a_job(priority=1)
        await transport.enqueue_parallel([waiting])
        [taken] = await delivered(transport, job)
        assert [each.job_id for each in await rival_transport.dequeue(worker_id="w", limit=5)] == [waiting.id]
        assert await transport.dequeue(worker_id="worker", limit=5) == []
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"

    @pytest.mark.guarantee("stores.delivered-at-once-is-one-workers")
    async def test_under_contention_it_is_nobody_elses(
        self, transport: JobTransport, rival_transport: JobTransport, scale: Scale
    ) -> None:
        """`enqueue_delivered`: it is nobody else's at any time, however many ask meanwhile."""
        asked, over = asyncio.Event(), asyncio.Event()

        async def ask(handle: JobTransport) -> list[str]:
            got: list[str] = []
            while not over.is_set():
                got += [job.job_id for job in await handle.dequeue(worker_id="rival", limit=3)]
                asked.set()
                await asyncio.sleep(0)
            return got

        async def make() -> list[DequeuedJob]:
            made: list[DequeuedJob] = []
            for _ in range(scale.rows // 8):
                made += await delivered(transport, a_job())
                asked.clear()
                await asked.wait()
            over.set()
            return made

        both = asyncio.gather(make(), ask(rival_transport), ask(transport))
        taken, *others = await scale.soon(both)
        assert others == [[], []]
        for each in taken:
            assert await transport.complete(each.job_id, each.fence) == "acknowledged"

    async def test_a_due_time_is_of_no_account(self, transport: JobTransport) -> None:
        """`enqueue_delivered`: a `due_at` is of no account, now or later."""
        job = replace(a_job(), due_at=datetime(2999, 1, 1, tzinfo=UTC))
        [taken] = await delivered(transport, job)
        kept = await self.job(transport, job)
        assert (kept.status, kept.due_at) == (Status.RUNNING, None)
        assert await transport.fail(taken.job_id, "no", retry=True, fence=taken.fence) == "acknowledged"
        assert [again.job_id for again in await transport.dequeue(worker_id="w")] == [job.id]

    @pytest.mark.guarantee("stores.jobs-one-per-stage")
    @pytest.mark.parametrize("state", ["pending", "running", "delivered", "completed", "suspended", "failed"])
    async def test_it_replaces_the_job_of_its_stage(self, transport: JobTransport, state: str) -> None:
        """`enqueue_delivered`: as `enqueue_parallel` does, in the pair's place, with counters at zero."""
        run_id = new_id("run")
        old, other = a_job(run_id, priority=1), a_job(run_id, stage_id="other")
        previous = None
        if state == "delivered":
            [previous] = await delivered(transport, old, worker_id="old")
        elif state == "pending":
            await transport.enqueue_parallel([old])
        else:
            previous = await self.deliver(transport, old, "old")
            await transport.fail(old.id, "no", retry=True, fence=previous.fence)
            [previous] = await transport.dequeue(worker_id="old")
        if state == "completed":
            await transport.complete(old.id)
        elif state == "suspended":
            await transport.suspend(old.id, datetime(2999, 1, 1, tzinfo=UTC))
        elif state == "failed":
            await transport.fail(old.id, "no", retry=False)
        await transport.enqueue_parallel([other])
        job = a_job(run_id, priority=2)
        [taken] = await delivered(transport, job, worker_id="new")
        kept = {each.id: each for each in await transport.get_jobs_by_run(run_id)}
        assert set(kept) == {job.id, other.id}
        assert kept[other.id].status is Status.PENDING
        assert (kept[job.id].status, kept[job.id].worker_id, kept[job.id].deliveries) == (
            Status.RUNNING,
            "new",
            1,
        )
        assert (kept[job.id].failures, kept[job.id].last_error, kept[job.id].due_at) == (0, None, None)
        if previous is not None:
            assert await transport.complete(previous.job_id, previous.fence) == "superseded"
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"

    @pytest.mark.guarantee("stores.fence-refuses-superseded")
    async def test_its_fence_acknowledges_once(self, transport: JobTransport) -> None:
        """`enqueue_delivered`: the fence is of this delivery: another, or an older one, is superseded."""
        job = a_job()
        [taken] = await delivered(transport, job)
        real = taken.fence
        for other in (
            Fence(started_at=real.started_at, deliveries=real.deliveries + 1),
            Fence(started_at=real.started_at - timedelta(microseconds=1), deliveries=real.deliveries),
        ):
            assert await transport.complete(job.id, other) == "superseded"
        assert (await self.job(transport, job)).status is Status.RUNNING
        assert await transport.defer(job.id, datetime(2000, 1, 1, tzinfo=UTC), "busy", real) == "acknowledged"
        [again] = await transport.dequeue(worker_id="other")
        assert (again.job_id, again.fence.deliveries, again.failures) == (job.id, 2, 0)
        assert await transport.complete(job.id, real) == "superseded"
        assert await transport.complete(job.id, again.fence) == "acknowledged"

    async def test_its_lease_begins_with_it(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`enqueue_delivered`: a lease that begins now: not stale at once; who lets it end is a worker lost."""
        job = a_job()
        [old] = await delivered(transport, job, worker_id="lost worker")
        sweep = await transport.release_stale(lease_unit)
        assert (sweep.released, sweep.exhausted) == ((), ())
        await pass_time(2 * lease_unit)
        sweep = await transport.release_stale(lease_unit)
        assert [each.id for each in sweep.released] == [job.id]
        kept = await self.job(transport, job)
        assert (kept.status, kept.failures, kept.worker_losses) == (Status.PENDING, 0, 1)
        assert kept.last_error == "LEASE_HEARTBEAT_LOST: not renewed by worker lost worker"
        [new] = await transport.dequeue(worker_id="other")
        assert (new.job_id, new.worker_losses, new.fence.deliveries) == (job.id, 1, 2)
        assert await transport.complete(old.job_id, old.fence) == "superseded"
        assert await transport.complete(new.job_id, new.fence) == "acknowledged"

    async def test_its_lease_is_renewed_like_any_other(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`JobLeases.touch`: renews the lease of the delivery that owns the job, also of such a one."""
        job = a_job()
        [taken] = await delivered(transport, job)
        await pass_time(3 * lease_unit)
        assert await transport.touch(taken.job_id, taken.fence)
        sweep = await transport.release_stale(2 * lease_unit)
        assert (sweep.released, sweep.exhausted) == ((), ())
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"
        assert not await transport.touch(taken.job_id, taken.fence)

    @pytest.mark.needs("heartbeats")
    async def test_its_lease_is_renewed_from_a_thread(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`HeartbeatChannel.renew_many`: as `JobLeases.touch` does, also of such a one."""
        assert isinstance(transport, OpensHeartbeats)
        channel = transport.open_heartbeats()
        assert channel is not None
        try:
            [taken] = await delivered(transport, a_job())
            lease = HeldLease(taken.job_id, taken.fence)
            await pass_time(3 * lease_unit)
            assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
            sweep = await transport.release_stale(2 * lease_unit)
            assert (sweep.released, sweep.exhausted) == ((), ())
            await transport.complete(taken.job_id, taken.fence)
            assert await asyncio.to_thread(channel.renew_many, [lease]) == [False]
        finally:
            await asyncio.to_thread(channel.close)

    async def test_it_fails_when_it_runs_too_long(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`expire_runaway`: fails jobs that were delivered longer ago than the cap, also such a one."""
        job = a_job()
        [taken] = await delivered(transport, job)
        assert await transport.expire_runaway(2 * lease_unit) == []
        await pass_time(4 * lease_unit)
        assert await transport.touch(taken.job_id, taken.fence)
        [expired] = await transport.expire_runaway(2 * lease_unit)
        assert (expired.id, expired.status) == (job.id, Status.FAILED)
        assert await transport.complete(taken.job_id, taken.fence) == "superseded"

    async def test_a_cancelled_run_leaves_it_to_its_worker(self, transport: JobTransport) -> None:
        """`cancel_by_run`: PENDING and SUSPENDED jobs become CANCELLED; a RUNNING job is its worker's."""
        run_id = new_id("run")
        job, waiting = a_job(run_id), a_job(run_id, stage_id="waiting")
        [taken] = await delivered(transport, job)
        await transport.enqueue_parallel([waiting])
        assert await transport.cancel_by_run(run_id) == 1
        states = {each.id: each.status for each in await transport.get_jobs_by_run(run_id)}
        assert states == {job.id: Status.RUNNING, waiting.id: Status.CANCELLED}
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"
