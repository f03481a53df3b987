"""Jobs of stages that wait no longer."""

import asyncio
from datetime import UTC, datetime

import pytest

from stagewright.ports import JobTransport
from stagewright.status import Status
from stagewright_conformance.job_transport import JobTransportSuite
from stagewright_conformance.samples import a_job, new_id
from stagewright_conformance.suite import Scale

__all__ = ["JobResumptionSuite"]

_FAR = datetime(2999, 1, 1, tzinfo=UTC)


class JobResumptionSuite(JobTransportSuite):
    """`JobQueue.resume`: the jobs of stages that wait no longer.

    Fixtures: those of `JobTransportSuite`.
    """

    @pytest.mark.guarantee("stores.jobs-resume-with-their-counters")
    async def test_a_suspended_job_is_due_at_once_with_its_id_and_counters(
        self, transport: JobTransport
    ) -> None:
        """`resume`: PENDING and due at once, with its id and all its counters; deliveries go on rising."""
        job = a_job(max_worker_losses=4, payload={"first": 1})
        taken = await self.deliver(transport, job)
        for _ in range(2):
            await transport.fail(taken.job_id, "no", retry=True, fence=taken.fence)
            [taken] = await transport.dequeue(worker_id="w")
        await transport.suspend(taken.job_id, _FAR, taken.fence)
        asked = a_job(job.run_id, payload={"second": 2})
        [standing] = await transport.resume([asked])
        kept = await self.job(transport, job)
        assert standing == kept
        assert (kept.id, kept.status, kept.due_at, kept.worker_id) == (job.id, Status.PENDING, None, None)
        assert (kept.deliveries, kept.failures, kept.payload) == (3, 2, {"first": 1})
        [again] = await transport.dequeue(worker_id="other")
        assert (again.job_id, again.fence.deliveries, again.failures) == (job.id, 4, 2)
        assert await transport.complete(taken.job_id, taken.fence) == "superseded"

    async def test_a_missing_job_is_enqueued(self, transport: JobTransport) -> None:
        """`resume`: one that is missing is enqueued, as by `enqueue_parallel`."""
        job = a_job(priority=7, payload={"a": 1})
        [standing] = await transport.resume([job])
        assert standing == await self.job(transport, job)
        assert (standing.id, standing.status, standing.priority, standing.payload) == (
            job.id,
            Status.PENDING,
            7,
            {"a": 1},
        )
        assert [taken.job_id for taken in await transport.dequeue(worker_id="w")] == [job.id]

    @pytest.mark.parametrize("ending", ["complete", "fail", "cancel"])
    async def test_a_job_that_has_ended_is_enqueued_anew(self, transport: JobTransport, ending: str) -> None:
        """`resume`: one that has ended is enqueued anew, with all counters at zero."""
        job = a_job()
        taken = await self.deliver(transport, job)
        if ending == "complete":
            await transport.complete(taken.job_id, taken.fence)
        elif ending == "fail":
            await transport.fail(taken.job_id, "no", retry=False, fence=taken.fence)
        else:
            await transport.suspend(taken.job_id, _FAR, taken.fence)
            assert await transport.cancel_by_run(job.run_id) == 1
        new = a_job(job.run_id)
        [standing] = await transport.resume([new])
        assert standing == await self.job(transport, job)
        assert (standing.id, standing.status, standing.deliveries, standing.failures) == (
            new.id,
            Status.PENDING,
            0,
            0,
        )
        assert (standing.completed_at, standing.last_error, standing.started_at) == (None, None, None)

    async def test_what_is_claimable_or_claimed_is_left_alone(self, transport: JobTransport) -> None:
        """`resume`: one that is PENDING or RUNNING is left alone, also one that isn't due yet."""
        run_id = new_id("run")
        running = a_job(run_id, stage_id="running")
        taken = await self.deliver(transport, running)
        pending, later = a_job(run_id, stage_id="pending"), a_job(run_id, stage_id="later", due_at=_FAR)
        await transport.enqueue_parallel([pending, later])
        before = await transport.get_jobs_by_run(run_id)
        asked = [a_job(run_id, stage_id=stage) for stage in ("later", "pending", "running")]
        standing = await transport.resume(asked)
        assert [job.id for job in standing] == [later.id, pending.id, running.id]
        assert [job.status for job in standing] == [Status.PENDING, Status.PENDING, Status.RUNNING]
        assert await transport.get_jobs_by_run(run_id) == before
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"

    async def test_several_jobs_are_answered_in_the_order_given(self, transport: JobTransport) -> None:
        """`resume`: the jobs of these runs and stages, in the order given; nothing for nothing."""
        assert await transport.resume([]) == []
        first, second, third = a_job(), a_job(), a_job()
        taken = await self.deliver(transport, second)
        await transport.suspend(taken.job_id, _FAR, taken.fence)
        other = a_job()
        await transport.enqueue_parallel([other])
        standing = await transport.resume([third, a_job(second.run_id), first])
        assert [job.id for job in standing] == [third.id, second.id, first.id]
        assert await transport.depth() == 4

    async def test_however_often_it_is_asked_for_a_job_is_delivered_once(
        self, transport: JobTransport, rival_transport: JobTransport, scale: Scale
    ) -> None:
        """`resume`: each at most once, however often it is asked for."""
        job = a_job()
        taken = await self.deliver(transport, job)
        await transport.suspend(taken.job_id, _FAR, taken.fence)
        stores = (transport, rival_transport)

        async def resume_and_take(number: int) -> int:
            await stores[number % 2].resume([a_job(job.run_id)])
            return len(await stores[number % 2].dequeue(worker_id=f"w{number}", limit=5))

        taken_by = await scale.soon(asyncio.gather(*map(resume_and_take, range(scale.contenders))))
        assert sum(taken_by) == 1
        assert (await self.job(transport, job)).deliveries == 2
