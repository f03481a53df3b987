"""Jobs that their worker has at once, inside the transaction of a persistence."""

import asyncio
from datetime import UTC, datetime

import pytest

from stagewright.errors import SupersededError
from stagewright.ports import Enlistable, JobTransport, Persistence
from stagewright.records import DequeuedJob
from stagewright.status import Status
from stagewright_conformance.delivered_jobs import delivered
from stagewright_conformance.job_transport import JobTransportSuite
from stagewright_conformance.samples import a_job, a_run
from stagewright_conformance.suite import PersistenceSuite

__all__ = ["DeliveredJobEnlistmentSuite"]


class _BodyError(Exception):
    """What a test's block raises."""


def _enlisted(transport: JobTransport, tx: Persistence) -> JobTransport:
    assert isinstance(transport, Enlistable)
    enlisted = transport.enlist(tx)
    assert isinstance(enlisted, JobTransport)
    return enlisted


@pytest.mark.needs("delivers_at_once")
class DeliveredJobEnlistmentSuite(PersistenceSuite, JobTransportSuite):
    """`DeliversAtOnce` and `Enlistable`: such a job comes with the outcome before it, or not at all.

    Fixtures: those of `PersistenceSuite` and `JobTransportSuite`, both over one database.
    """

    @pytest.mark.guarantee("stores.enlisted-writes-share-the-fate")
    async def test_a_job_is_kept_with_its_transaction(
        self, persistence: Persistence, transport: JobTransport, rival_transport: JobTransport
    ) -> None:
        """`enlist`: the writes are kept with `tx`, and nobody sees the job before."""
        run, job = a_run(), a_job()
        async with persistence.transaction() as tx:
            await tx.create_run(run)
            [taken] = await delivered(_enlisted(transport, tx), job)
            assert await rival_transport.get_jobs_by_run(job.run_id) == []
        assert await persistence.get_run(run.id) is not None
        assert (await self.job(rival_transport, job)).status is Status.RUNNING
        assert await rival_transport.dequeue(worker_id="w") == []
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"

    @pytest.mark.guarantee("stores.enlisted-writes-share-the-fate")
    @pytest.mark.parametrize("cause", [_BodyError, asyncio.CancelledError])
    async def test_a_job_is_undone_with_its_transaction(
        self, persistence: Persistence, transport: JobTransport, cause: type[BaseException]
    ) -> None:
        """`enlist`: the writes are undone with `tx`: the fence is nobody's, and what it replaced is there."""
        run, old = a_run(), a_job()
        await transport.enqueue_parallel([old])
        job = a_job(old.run_id)
        answered: list[DequeuedJob] = []

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await tx.create_run(run)
                answered.extend(await delivered(_enlisted(transport, tx), job))
                raise cause

        with pytest.raises(cause):
            await fail()
        assert await persistence.get_run(run.id) is None
        assert (await self.job(transport, old)).id == old.id
        assert await transport.complete(answered[0].job_id, answered[0].fence) == "superseded"
        assert [each.job_id for each in await transport.dequeue(worker_id="w")] == [old.id]

    async def test_a_job_is_undone_with_its_savepoint(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`enlist`: a savepoint undoes the transport's writes too."""
        kept, undone = a_job(), a_job()

        async def fail_in(tx: Persistence) -> None:
            async with tx.transaction() as inner:
                await delivered(_enlisted(transport, inner), undone)
                raise _BodyError

        async with persistence.transaction() as tx:
            [taken] = await delivered(_enlisted(transport, tx), kept)
            with pytest.raises(_BodyError):
                await fail_in(tx)
        assert await transport.get_jobs_by_run(undone.run_id) == []
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"

    @pytest.mark.parametrize("begins", [1, 3])
    @pytest.mark.parametrize("waiting", [0, 1, 3])
    async def test_what_ends_what_waits_and_what_begins_commit_together(
        self, persistence: Persistence, transport: JobTransport, begins: int, waiting: int
    ) -> None:
        """`enlist`: acknowledgements, jobs that wait and jobs that are delivered are kept together."""
        ended = [await self.deliver(transport, a_job()) for _ in range(2)]
        begun = [a_job("run", stage_id=f"begun-{number}") for number in range(begins)]
        left = [a_job("run", stage_id=f"left-{number}") for number in range(waiting)]
        async with persistence.transaction() as tx:
            enlisted = _enlisted(transport, tx)
            for each in ended:
                assert await enlisted.complete(each.job_id, each.fence) == "acknowledged"
            await enlisted.enqueue_parallel(left)
            taken = await delivered(enlisted, *begun)
        jobs = {each.stage_id: each for each in await transport.get_jobs_by_run("run")}
        states = {stage: (each.status, each.deliveries, each.worker_id) for stage, each in jobs.items()}
        assert states == {
            **{job.stage_id: (Status.RUNNING, 1, "worker") for job in begun},
            **{job.stage_id: (Status.PENDING, 0, None) for job in left},
        }
        for each in ended:
            [done] = await transport.get_jobs_by_run(each.run_id)
            assert done.status is Status.COMPLETED
        assert {each.job_id for each in await transport.dequeue(worker_id="w", limit=9)} == {
            job.id for job in left
        }
        for each in taken:
            assert await transport.complete(each.job_id, each.fence) == "acknowledged"

    @pytest.mark.parametrize("first", ["delivered", "waiting"])
    @pytest.mark.parametrize("each", [1, 2])
    async def test_jobs_are_in_the_order_in_which_they_came(
        self, persistence: Persistence, transport: JobTransport, first: str, each: int
    ) -> None:
        """`enqueue_delivered`: a job that goes back to the queue is in its order: by priority, then by age."""
        begun = [a_job("run", stage_id=f"begun-{number}") for number in range(each)]
        left = [a_job("run", stage_id=f"left-{number}") for number in range(each)]
        async with persistence.transaction() as tx:
            enlisted = _enlisted(transport, tx)
            if first == "waiting":
                await enlisted.enqueue_parallel(left)
            taken = await delivered(enlisted, *begun)
            if first == "delivered":
                await enlisted.enqueue_parallel(left)
        for job in taken:
            await transport.fail(job.job_id, "no", retry=True, fence=job.fence)
        ordered = [*begun, *left] if first == "delivered" else [*left, *begun]
        assert [job.job_id for job in await transport.dequeue(worker_id="w", limit=9)] == [
            job.id for job in ordered
        ]

    @pytest.mark.parametrize("others", [0, 2])
    async def test_a_job_is_settled_and_replaced_together(
        self, persistence: Persistence, transport: JobTransport, others: int
    ) -> None:
        """`enqueue_delivered`: it replaces the pair's job, also one that the same transaction has settled."""
        [old] = await delivered(transport, a_job("run"), worker_id="old")
        again = [a_job("run"), *(a_job("run", stage_id=f"other-{number}") for number in range(others))]
        async with persistence.transaction() as tx:
            enlisted = _enlisted(transport, tx)
            assert await enlisted.complete(old.job_id, old.fence) == "acknowledged"
            taken = await delivered(enlisted, *again, worker_id="new")
        kept = await transport.get_jobs_by_run("run")
        assert {job.id for job in kept} == {job.id for job in again}
        assert {(job.status, job.worker_id, job.deliveries) for job in kept} == {(Status.RUNNING, "new", 1)}
        assert await transport.complete(old.job_id, old.fence) == "superseded"
        for each in taken:
            assert await transport.complete(each.job_id, each.fence) == "acknowledged"

    @pytest.mark.parametrize("last", ["delivered", "waiting"])
    async def test_the_last_of_several_jobs_for_a_stage_stays(
        self, persistence: Persistence, transport: JobTransport, last: str
    ) -> None:
        """`enqueue_delivered`: one job per run and stage, also where one transaction enqueues for it again."""
        first, second = a_job("run"), a_job("run")
        async with persistence.transaction() as tx:
            enlisted = _enlisted(transport, tx)
            if last == "delivered":
                await enlisted.enqueue_parallel([first])
                await delivered(enlisted, second)
            else:
                await delivered(enlisted, first)
                await enlisted.enqueue_parallel([second])
        [kept] = await transport.get_jobs_by_run("run")
        assert (kept.id, kept.deliveries) == (second.id, int(last == "delivered"))
        assert kept.status is (Status.RUNNING if last == "delivered" else Status.PENDING)
        claimed = await transport.dequeue(worker_id="w")
        assert [each.job_id for each in claimed] == ([] if last == "delivered" else [second.id])

    async def test_it_can_be_settled_in_the_transaction_that_made_it(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`enqueue_delivered`: its worker has it already, in the transaction that makes it too."""
        job = a_job()
        async with persistence.transaction() as tx:
            enlisted = _enlisted(transport, tx)
            [taken] = await delivered(enlisted, job)
            assert [each.status for each in await enlisted.get_jobs_by_run(job.run_id)] == [Status.RUNNING]
            assert await enlisted.touch(taken.job_id, taken.fence)
            assert await enlisted.complete(taken.job_id, taken.fence) == "acknowledged"
        assert (await self.job(transport, job)).status is Status.COMPLETED

    async def test_nothing_is_kept_of_who_lost_the_job_before(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`JobQueue`: a superseded acknowledgement raises at the latest at commit, and nothing beside it is kept."""
        lost = await self.deliver(transport, a_job(), "lost")
        await transport.defer(lost.job_id, datetime(2000, 1, 1, tzinfo=UTC), "busy", lost.fence)
        [new] = await transport.dequeue(worker_id="new")
        job = a_job()

        async def settle() -> None:
            async with persistence.transaction() as tx:
                enlisted = _enlisted(transport, tx)
                if await enlisted.complete(lost.job_id, lost.fence) == "superseded":
                    raise SupersededError(lost.job_id)
                await delivered(enlisted, job, worker_id="lost")

        with pytest.raises(SupersededError):
            await settle()
        assert await transport.get_jobs_by_run(job.run_id) == []
        assert await transport.complete(new.job_id, new.fence) == "acknowledged"
