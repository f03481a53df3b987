"""Acknowledgements of jobs, and the fences that keep a superseded worker out."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from stagewright.errors import RecordNotFoundError
from stagewright.ports import JobTransport
from stagewright.records import Acknowledgement, DequeuedJob, Fence
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_conformance.job_transport import JobTransportSuite, PassTime
from stagewright_conformance.samples import a_job

__all__ = ["JobAcknowledgementSuite", "JobFenceSuite"]

_FAR: Final = datetime(2999, 1, 1, 12, 30, 15, 123_457, tzinfo=UTC)
_ACKNOWLEDGEMENTS: Final = ("complete", "suspend", "fail", "fail with retry", "defer")


async def _acknowledge(
    transport: JobTransport, how: str, job_id: str, fence: Fence | None
) -> Acknowledgement:
    match how:
        case "complete":
            return await transport.complete(job_id, fence)
        case "suspend":
            return await transport.suspend(job_id, _FAR, fence)
        case "fail":
            return await transport.fail(job_id, "no price", retry=False, fence=fence)
        case "fail with retry":
            return await transport.fail(job_id, "no price", retry=True, delay=timedelta(days=1), fence=fence)
        case _:
            return await transport.defer(job_id, _FAR, "busy", fence)


class JobAcknowledgementSuite(JobTransportSuite):
    """`JobQueue`: what each acknowledgement makes of a job.

    Fixtures: those of `JobTransportSuite`.
    """

    async def test_a_completed_job_is_done(self, transport: JobTransport) -> None:
        """`complete`: the job becomes COMPLETED."""
        job = a_job()
        taken = await self.deliver(transport, job)
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"
        kept = await self.job(transport, job)
        assert (kept.status, kept.failures, kept.interruptions) == (Status.COMPLETED, 0, 0)
        assert kept.completed_at is not None
        assert await transport.dequeue(worker_id="w") == []

    async def test_a_suspended_job_leaves_its_worker(self, transport: JobTransport) -> None:
        """`suspend`: the job becomes SUSPENDED and leaves its worker; only enqueueing brings it back."""
        job = a_job()
        taken = await self.deliver(transport, job)
        assert await transport.suspend(taken.job_id, _FAR, taken.fence) == "acknowledged"
        kept = await self.job(transport, job)
        assert (kept.status, kept.worker_id, kept.locked_at) == (Status.SUSPENDED, None, None)
        assert (kept.failures, kept.interruptions, kept.worker_losses) == (0, 0, 0)
        assert await transport.dequeue(worker_id="w") == []

    async def test_a_failed_job_without_retry_is_failed(self, transport: JobTransport) -> None:
        """`fail`: one more failure, `error` is kept, and without `retry` the job becomes FAILED."""
        job = a_job()
        taken = await self.deliver(transport, job)
        assert (
            await transport.fail(taken.job_id, "no price", retry=False, fence=taken.fence) == "acknowledged"
        )
        kept = await self.job(transport, job)
        assert (kept.status, kept.failures, kept.last_error) == (Status.FAILED, 1, "no price")
        assert await transport.dequeue(worker_id="w") == []

    async def test_a_failed_job_with_retry_is_delivered_again(self, transport: JobTransport) -> None:
        """`fail`: with `retry` PENDING at once for no delay, one delivery later; the budget is the caller's affair."""
        job = a_job()
        taken = await self.deliver(transport, job)
        for failures in range(1, 6):  # beyond max_attempts, which the transport doesn't judge
            assert (
                await transport.fail(taken.job_id, f"no {failures}", retry=True, fence=taken.fence)
                == "acknowledged"
            )
            kept = await self.job(transport, job)
            assert (kept.status, kept.worker_id, kept.locked_at) == (Status.PENDING, None, None)
            assert (kept.failures, kept.last_error) == (failures, f"no {failures}")
            [taken] = await transport.dequeue(worker_id="w")
            assert (taken.failures, taken.fence.deliveries) == (failures, failures + 1)
        kept = await self.job(transport, job)
        assert (kept.worker_losses, kept.interruptions) == (0, 0)

    @pytest.mark.needs("due_times")
    async def test_a_failed_job_is_due_after_its_delay(
        self, transport: JobTransport, pass_time: PassTime, lease_unit: timedelta
    ) -> None:
        """`fail`: due after `delay`."""
        taken = await self.deliver(transport, a_job())
        await transport.fail(taken.job_id, "no price", retry=True, delay=3 * lease_unit, fence=taken.fence)
        assert await transport.dequeue(worker_id="w") == []
        await pass_time(4 * lease_unit)
        assert [job.job_id for job in await transport.dequeue(worker_id="w")] == [taken.job_id]

    @pytest.mark.guarantee("stores.defer-spends-no-budget")
    async def test_a_deferred_job_spends_no_budget(
        self, transport: JobTransport, clock_now: Callable[[], datetime], lease_unit: timedelta
    ) -> None:
        """`defer`: PENDING, due at `until`, one more interruption and no budget spent."""
        job = a_job()
        taken = await self.deliver(transport, job)
        for interruptions in range(1, 4):
            until = clock_now() - lease_unit
            assert await transport.defer(taken.job_id, until, "busy", taken.fence) == "acknowledged"
            kept = await self.job(transport, job)
            assert (kept.status, kept.worker_id, kept.locked_at) == (Status.PENDING, None, None)
            assert (kept.failures, kept.worker_losses, kept.interruptions) == (0, 0, interruptions)
            assert kept.due_at == until
            [taken] = await transport.dequeue(worker_id="w")
            assert (taken.failures, taken.worker_losses) == (0, 0)

    @pytest.mark.needs("due_times")
    async def test_a_deferred_job_is_delivered_once_it_is_due(
        self,
        transport: JobTransport,
        pass_time: PassTime,
        clock_now: Callable[[], datetime],
        lease_unit: timedelta,
    ) -> None:
        """`defer`: due at `until`."""
        taken = await self.deliver(transport, a_job())
        await transport.defer(taken.job_id, clock_now() + 3 * lease_unit, "busy", taken.fence)
        assert await transport.dequeue(worker_id="w") == []
        await pass_time(4 * lease_unit)
        assert [job.job_id for job in await transport.dequeue(worker_id="w")] == [taken.job_id]

    @pytest.mark.parametrize("how", _ACKNOWLEDGEMENTS)
    async def test_an_unfenced_acknowledgement_always_applies(
        self, transport: JobTransport, how: str
    ) -> None:
        """`JobQueue`: without a fence it always applies, also to a job that nobody owns."""
        job = a_job()
        await transport.enqueue_parallel([job])
        assert await _acknowledge(transport, how, job.id, None) == "acknowledged"
        kept = await self.job(transport, job)
        changed = kept.status is not Status.PENDING or kept.failures + kept.interruptions > 0
        assert changed

    @pytest.mark.parametrize("how", ["complete", "fail"])
    async def test_a_job_that_has_ended_is_due_at_no_time(self, transport: JobTransport, how: str) -> None:
        """`complete`, `fail`: its `due_at` is None, also where it waited for a time."""
        for sleeps in (True, False):
            job = a_job(due_at=_FAR)
            if sleeps:
                job = a_job()
                taken = await self.deliver(transport, job)
                await transport.suspend(taken.job_id, _FAR, taken.fence)
            else:
                await transport.enqueue_parallel([job])
            if how == "complete":
                await transport.complete(job.id)
            else:
                await transport.fail(job.id, "no price", retry=False)
            kept = await self.job(transport, job)
            assert (kept.status in TERMINAL_RUN_STATUSES, kept.due_at) == (True, None)

    @pytest.mark.parametrize("how", _ACKNOWLEDGEMENTS)
    async def test_an_unfenced_acknowledgement_of_an_unknown_job_is_refused(
        self, transport: JobTransport, how: str
    ) -> None:
        """`JobQueue`: without a fence a job that doesn't exist raises `RecordNotFoundError`."""
        with pytest.raises(RecordNotFoundError):
            await _acknowledge(transport, how, "no such job", None)


@pytest.mark.parametrize("how", _ACKNOWLEDGEMENTS)
class JobFenceSuite(JobTransportSuite):
    """`JobQueue`: a fence makes an acknowledgement apply only while its very delivery owns the job.

    Fixtures: those of `JobTransportSuite`.
    """

    async def _superseded(self, transport: JobTransport) -> tuple[DequeuedJob, DequeuedJob]:
        """A delivery that lost its job, and the one that owns it now."""
        old = await self.deliver(transport, a_job(), "old worker")
        await transport.fail(old.job_id, "first", retry=True, fence=old.fence)
        [new] = await transport.dequeue(worker_id="new worker")
        return old, new

    @pytest.mark.guarantee("stores.fence-refuses-superseded")
    async def test_a_superseded_worker_writes_nothing(self, transport: JobTransport, how: str) -> None:
        """`JobQueue`: otherwise nothing is written and the answer is `superseded`."""
        old, new = await self._superseded(transport)
        before = await transport.get_jobs_by_run(old.run_id)
        assert await _acknowledge(transport, how, old.job_id, old.fence) == "superseded"
        assert await transport.get_jobs_by_run(old.run_id) == before
        assert await transport.complete(new.job_id, new.fence) == "acknowledged"

    async def test_a_fence_has_to_match_in_both_its_parts(self, transport: JobTransport, how: str) -> None:
        """`Fence`: both must be exactly what the transport has stored."""
        taken = await self.deliver(transport, a_job())
        before = await transport.get_jobs_by_run(taken.run_id)
        later = replace(taken.fence, started_at=taken.fence.started_at + timedelta(microseconds=1))
        assert await _acknowledge(transport, how, taken.job_id, later) == "superseded"
        more = replace(taken.fence, deliveries=taken.fence.deliveries + 1)
        assert await _acknowledge(transport, how, taken.job_id, more) == "superseded"
        assert await transport.get_jobs_by_run(taken.run_id) == before
        assert await _acknowledge(transport, how, taken.job_id, taken.fence) == "acknowledged"

    async def test_a_fence_counts_only_while_the_job_is_running(
        self, transport: JobTransport, how: str
    ) -> None:
        """`JobQueue`: it applies only while the job is RUNNING, so an acknowledgement counts once."""
        for ending in _ACKNOWLEDGEMENTS:
            taken = await self.deliver(transport, a_job())
            assert await _acknowledge(transport, ending, taken.job_id, taken.fence) == "acknowledged"
            before = await transport.get_jobs_by_run(taken.run_id)
            assert await _acknowledge(transport, how, taken.job_id, taken.fence) == "superseded"
            assert await transport.get_jobs_by_run(taken.run_id) == before

    async def test_a_replaced_or_deleted_job_answers_superseded(
        self, transport: JobTransport, how: str
    ) -> None:
        """`JobQueue`: the answer is `superseded` also when the job is gone."""
        replaced = await self.deliver(transport, a_job())
        await transport.enqueue_parallel([a_job(replaced.run_id)])
        before = await transport.get_jobs_by_run(replaced.run_id)
        assert await _acknowledge(transport, how, replaced.job_id, replaced.fence) == "superseded"
        assert await transport.get_jobs_by_run(replaced.run_id) == before
        await transport.delete_by_run_and_stages(replaced.run_id, ["price"])
        deleted = await self.deliver(transport, a_job())
        await transport.delete_by_run_and_stages(deleted.run_id, ["price"])
        assert await _acknowledge(transport, how, deleted.job_id, deleted.fence) == "superseded"
        assert await transport.get_jobs_by_run(deleted.run_id) == []
