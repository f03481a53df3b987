"""Leases of delivered jobs, and jobs by run."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from stagewright.ports import JobTransport
from stagewright.records import JobRecord
from stagewright.status import Status
from stagewright_conformance.job_transport import JobTransportSuite, PassTime
from stagewright_conformance.samples import a_job, new_id
from stagewright_conformance.suite import Scale

__all__ = ["JobAdminSuite", "JobLeaseSuite"]


class JobLeaseSuite(JobTransportSuite):
    """`JobLeases`: lost workers and jobs that run too long.

    Fixtures: those of `JobTransportSuite`.
    """

    @pytest.mark.guarantee("stores.leases-lost-workers-found")
    async def test_a_lease_that_was_not_renewed_ends(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`release_stale`: one more worker loss, the last owner named, PENDING again; renewed leases go on."""
        lost, kept = a_job(), a_job()
        await self.deliver(transport, lost, "lost worker")
        alive = await self.deliver(transport, kept, "live worker")
        await pass_time(3 * lease_unit)
        assert await transport.touch(alive.job_id, alive.fence)
        sweep = await transport.release_stale(2 * lease_unit)
        assert ([job.id for job in sweep.released], sweep.exhausted) == ([lost.id], ())
        job = await self.job(transport, lost)
        assert sweep.released == (job,)
        assert (job.status, job.worker_id, job.locked_at) == (Status.PENDING, None, None)
        assert (job.failures, job.worker_losses, job.interruptions) == (0, 1, 0)
        assert job.last_error == "LEASE_HEARTBEAT_LOST: not renewed by worker lost worker"
        assert (await self.job(transport, kept)).status is Status.RUNNING
        assert await transport.complete(alive.job_id, alive.fence) == "acknowledged"

    async def test_a_released_job_is_delivered_again_at_once(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`release_stale`: the job is PENDING again, and its former owner is superseded."""
        old = await self.deliver(transport, a_job())
        await pass_time(2 * lease_unit)
        await transport.release_stale(lease_unit)
        [new] = await transport.dequeue(worker_id="other")
        assert (new.job_id, new.worker_losses, new.fence.deliveries) == (old.job_id, 1, 2)
        assert await transport.complete(old.job_id, old.fence) == "superseded"
        assert not await transport.touch(old.job_id, old.fence)
        assert await transport.complete(new.job_id, new.fence) == "acknowledged"

    async def test_a_job_that_lost_one_worker_too_many_is_failed(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`release_stale`: FAILED once it has lost `max_worker_losses` workers."""
        job = a_job(max_worker_losses=2)
        await transport.enqueue_parallel([job])
        for losses in (1, 2):
            assert len(await transport.dequeue(worker_id=f"worker {losses}")) == 1
            await pass_time(2 * lease_unit)
            sweep = await transport.release_stale(lease_unit)
            assert (len(sweep.released), len(sweep.exhausted)) == (2 - losses, losses - 1)
        kept = await self.job(transport, job)
        assert (kept.status, kept.worker_losses, kept.failures) == (Status.FAILED, 2, 0)
        assert kept.last_error == "LEASE_HEARTBEAT_LOST: not renewed by worker worker 2"
        assert await transport.dequeue(worker_id="w") == []

    @pytest.mark.parametrize("how", ["stale", "exhausted", "runaway"])
    async def test_lost_jobs_are_answered_as_they_were_enqueued(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta, how: str
    ) -> None:
        """`JobLeases`: by the time they were enqueued, those of one call one after the other."""
        losses = 1 if how == "exhausted" else 2
        jobs = [a_job(priority=priority, max_worker_losses=losses) for priority in range(6)]
        await transport.enqueue_parallel(jobs)
        # Delivered the other way round.
        for job in reversed(jobs):
            assert [taken.job_id for taken in await transport.dequeue(worker_id="w")] == [job.id]
        await pass_time(2 * lease_unit)
        if how == "runaway":
            lost: Sequence[JobRecord] = await transport.expire_runaway(lease_unit)
        else:
            sweep = await transport.release_stale(lease_unit)
            lost = (*sweep.released, *sweep.exhausted)
        assert [job.id for job in lost] == [job.id for job in jobs]

    async def test_only_running_jobs_lose_their_lease(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`release_stale`, `expire_runaway`: RUNNING jobs and no others."""
        pending, done, suspended = a_job(), a_job(), a_job()
        for job in (done, suspended):
            await self.deliver(transport, job)
        await transport.complete(done.id)
        await transport.suspend(suspended.id, datetime(2999, 1, 1, tzinfo=UTC))
        await transport.enqueue_parallel([pending])
        await pass_time(2 * lease_unit)
        sweep = await transport.release_stale(lease_unit)
        assert (sweep.released, sweep.exhausted) == ((), ())
        assert await transport.expire_runaway(lease_unit) == []

    async def test_of_several_sweeps_one_releases_a_job(
        self,
        transport: JobTransport,
        rival_transport: JobTransport,
        pass_time: PassTime,
        lease_unit: timedelta,
        scale: Scale,
    ) -> None:
        """`release_stale`: each lost lease is one worker loss, however many sweep."""
        job = a_job(max_worker_losses=99)
        await self.deliver(transport, job)
        await pass_time(2 * lease_unit)
        stores = (transport, rival_transport)
        sweeps = [stores[n % 2].release_stale(lease_unit) for n in range(scale.contenders)]
        swept = await scale.soon(asyncio.gather(*sweeps))
        assert sum(len(sweep.released) for sweep in swept) == 1
        assert (await self.job(transport, job)).worker_losses == 1

    async def test_touching_renews_the_lease_and_nothing_else(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`touch`: renews the lease of the delivery that owns the job, and changes nothing else of it."""
        job = a_job()
        taken = await self.deliver(transport, job)
        before = await self.job(transport, job)
        await pass_time(lease_unit)
        assert await transport.touch(taken.job_id, taken.fence)
        after = await self.job(transport, job)
        assert before.locked_at is not None
        assert after.locked_at is not None
        assert after.locked_at - before.locked_at >= lease_unit / 2
        assert replace(after, locked_at=before.locked_at) == before
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"

    async def test_a_job_that_is_not_owned_cannot_be_touched(self, transport: JobTransport) -> None:
        """`touch`: False if this delivery doesn't own the job any more, and nothing is written."""
        job = a_job()
        taken = await self.deliver(transport, job)
        await transport.fail(taken.job_id, "no", retry=True, fence=taken.fence)
        pending = await self.job(transport, job)
        assert not await transport.touch(taken.job_id, taken.fence)
        assert not await transport.touch("no such job", taken.fence)
        assert await self.job(transport, job) == pending

    async def test_a_job_that_runs_too_long_fails_renewed_or_not(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`expire_runaway`: fails jobs that were delivered longer ago than the cap, and names the cap."""
        runaway, young = a_job(), a_job()
        taken = await self.deliver(transport, runaway)
        await pass_time(4 * lease_unit)
        assert await transport.touch(taken.job_id, taken.fence)
        await self.deliver(transport, young)
        [expired] = await transport.expire_runaway(2 * lease_unit)
        job = await self.job(transport, runaway)
        assert expired == job
        assert job.status is Status.FAILED
        seconds = (2 * lease_unit).total_seconds()
        assert job.last_error == f"LEASE_ABSOLUTE_CAP: still running {seconds:g} s after it was delivered"
        assert (await self.job(transport, young)).status is Status.RUNNING
        assert await transport.complete(taken.job_id, taken.fence) == "superseded"
        assert await transport.expire_runaway(2 * lease_unit) == []

    async def test_nothing_is_older_than_the_calendar(self, transport: JobTransport) -> None:
        """`release_stale`, `expire_runaway`: any age is borne, and one beyond the calendar concerns nobody."""
        job = a_job()
        taken = await self.deliver(transport, job)
        for years in (2_030, 9_990):
            age = timedelta(days=365 * years)
            sweep = await transport.release_stale(age)
            assert (sweep.released, sweep.exhausted) == ((), ())
            assert await transport.expire_runaway(age) == []
        assert (await self.job(transport, job)).status is Status.RUNNING
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"


class JobAdminSuite(JobTransportSuite):
    """`JobAdmin`: jobs by run; the listing for people has a suite of its own.

    Fixtures: those of `JobTransportSuite`.
    """

    async def test_cancelling_takes_what_no_worker_has(self, transport: JobTransport) -> None:
        """`cancel_by_run`: PENDING and SUSPENDED jobs become CANCELLED; a RUNNING job is its worker's."""
        run_id = new_id("run")
        running, suspended, done = (
            a_job(run_id, stage_id=stage) for stage in ("running", "suspended", "done")
        )
        taken = await self.deliver(transport, running)
        for job in (suspended, done):
            await self.deliver(transport, job)
        await transport.suspend(suspended.id, datetime(2999, 1, 1, tzinfo=UTC))
        await transport.complete(done.id)
        pending, other = a_job(run_id, stage_id="pending"), a_job()
        await transport.enqueue_parallel([pending, other])
        assert await transport.cancel_by_run(run_id) == 2
        assert {job.stage_id: job.status for job in await transport.get_jobs_by_run(run_id)} == {
            "running": Status.RUNNING,
            "suspended": Status.CANCELLED,
            "done": Status.COMPLETED,
            "pending": Status.CANCELLED,
        }
        assert await transport.cancel_by_run(run_id) == 0
        assert [job.job_id for job in await transport.dequeue(worker_id="w", limit=9)] == [other.id]
        assert await transport.complete(running.id, taken.fence) == "acknowledged"

    async def test_a_job_is_either_cancelled_or_delivered(
        self, transport: JobTransport, rival_transport: JobTransport, scale: Scale
    ) -> None:
        """`cancel_by_run`: jobs that a claimer is taking at this moment are skipped, never waited for."""
        run_id = new_id("run")
        count = scale.contenders * 4
        await transport.enqueue_parallel([a_job(run_id, stage_id=f"s{n}") for n in range(count)])
        takes = [rival_transport.dequeue(worker_id="w", limit=2) for _ in range(scale.contenders)]
        results = await scale.soon(asyncio.gather(*takes, transport.cancel_by_run(run_id)))
        *taken, cancelled = results
        assert isinstance(cancelled, int)
        delivered = [job for jobs in taken if isinstance(jobs, list) for job in jobs]
        statuses = [job.status for job in await transport.get_jobs_by_run(run_id)]
        assert statuses.count(Status.RUNNING) == len(delivered)
        assert statuses.count(Status.CANCELLED) == cancelled

    async def test_deleting_takes_these_stages_whatever_their_state(self, transport: JobTransport) -> None:
        """`delete_by_run_and_stages`: deletes the jobs of these stages and answers how many there were."""
        run_id = new_id("run")
        await self.deliver(transport, a_job(run_id, stage_id="running"))
        await self.deliver(transport, a_job(run_id, stage_id="done"))
        await transport.complete((await transport.get_jobs_by_run(run_id))[1].id)
        await transport.enqueue_parallel([a_job(run_id, stage_id="pending"), a_job(run_id, stage_id="kept")])
        other = a_job(stage_id="done")
        await transport.enqueue_parallel([other])
        assert (
            await transport.delete_by_run_and_stages(run_id, ["running", "done", "pending", "unknown"]) == 3
        )
        assert [job.stage_id for job in await transport.get_jobs_by_run(run_id)] == ["kept"]
        assert len(await transport.get_jobs_by_run(other.run_id)) == 1
        assert await transport.delete_by_run_and_stages(run_id, []) == 0
        assert await transport.delete_by_run_and_stages("no such run", ["done"]) == 0

    async def test_jobs_of_a_run_are_listed_as_they_were_enqueued(self, transport: JobTransport) -> None:
        """`get_jobs_by_run`: all jobs of a run, by the time they were enqueued."""
        run_id = new_id("run")
        stages = ["z", "a", "m"]
        for stage in stages:
            await transport.enqueue_parallel([a_job(run_id, stage_id=stage, priority=len(stage))])
        await transport.enqueue_parallel([a_job()])
        assert [job.stage_id for job in await transport.get_jobs_by_run(run_id)] == stages
        assert await transport.get_jobs_by_run("no such run") == []

    async def test_depth_counts_what_could_be_delivered_now(self, transport: JobTransport) -> None:
        """`depth`: how many jobs are PENDING and due."""
        assert await transport.depth() == 0
        await transport.enqueue_parallel([a_job(), a_job(), a_job()])
        assert await transport.depth() == 3
        [taken] = await transport.dequeue(worker_id="w")
        assert await transport.depth() == 2
        await transport.fail(taken.job_id, "no", retry=True, fence=taken.fence)
        assert await transport.depth() == 3
