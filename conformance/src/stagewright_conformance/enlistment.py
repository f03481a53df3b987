"""A transport inside the transaction of a persistence."""

import asyncio
from datetime import UTC, datetime

import pytest

from stagewright.errors import SupersededError
from stagewright.ports import Enlistable, JobTransport, Persistence
from stagewright.records import RunPatch
from stagewright.status import Status
from stagewright_conformance.job_transport import JobTransportSuite
from stagewright_conformance.samples import LATER, a_job, a_run
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["TransportEnlistmentSuite"]


class _BodyError(Exception):
    """What a test's block raises."""


def _enlisted(transport: JobTransport, tx: Persistence) -> JobTransport:
    assert isinstance(transport, Enlistable)
    enlisted = transport.enlist(tx)
    assert isinstance(enlisted, JobTransport)
    return enlisted


class TransportEnlistmentSuite(PersistenceSuite, JobTransportSuite):
    """`Enlistable.enlist` of a transport: its writes are kept or undone with the transaction.

    Fixtures: those of `PersistenceSuite` and `JobTransportSuite`, both over one database, and `stranger`
    (required: a persistence over another database of the same kind).
    """

    @pytest.fixture
    def stranger(self) -> Persistence:
        """A persistence over another database than `transport`'s."""
        raise NotImplementedError("override the fixture `stranger` with a persistence over another database")

    async def test_a_transport_of_another_database_does_not_enlist(
        self, transport: JobTransport, stranger: Persistence
    ) -> None:
        """`enlist`: None if it lives in another database."""
        assert isinstance(transport, Enlistable)
        async with stranger.transaction() as tx:
            assert transport.enlist(tx) is None

    @pytest.mark.guarantee("stores.enlisted-writes-share-the-fate")
    async def test_a_job_is_kept_with_the_run_it_belongs_to(
        self,
        persistence: Persistence,
        transport: JobTransport,
        rival_transport: JobTransport,
        background: Background,
        scale: Scale,
    ) -> None:
        """`enlist`: the writes are kept with `tx`, and nobody gets the job before; who asks may have to wait."""
        run, job = a_run(), a_job()
        async with persistence.transaction() as tx:
            await tx.create_run(run)
            assert await _enlisted(transport, tx).enqueue_parallel([job]) == [job.id]
            assert await transport.get_jobs_by_run(job.run_id) == []
            asking = background.start(rival_transport.dequeue(worker_id="w"))
            assert await scale.still_waits(asking) or asking.result() == []
        assert await persistence.get_run(run.id) is not None
        taken = await scale.soon(asking) or await transport.dequeue(worker_id="w")
        assert [each.job_id for each in taken] == [job.id]

    @pytest.mark.guarantee("stores.enlisted-writes-share-the-fate")
    @pytest.mark.parametrize("cause", [_BodyError, asyncio.CancelledError])
    async def test_a_job_is_undone_with_the_run_it_belongs_to(
        self, persistence: Persistence, transport: JobTransport, cause: type[BaseException]
    ) -> None:
        """`enlist`: the writes are undone with `tx`."""
        run, job = a_run(), a_job()

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await tx.create_run(run)
                await _enlisted(transport, tx).enqueue_parallel([job])
                raise cause

        with pytest.raises(cause):
            await fail()
        assert await persistence.get_run(run.id) is None
        assert await transport.get_jobs_by_run(job.run_id) == []

    async def test_a_job_is_undone_with_its_savepoint(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`enlist`: a savepoint undoes the transport's writes too."""
        kept, undone = a_job(), a_job()

        async def fail_in(tx: Persistence) -> None:
            async with tx.transaction() as inner:
                await _enlisted(transport, inner).enqueue_parallel([undone])
                raise _BodyError

        async with persistence.transaction() as tx:
            await _enlisted(transport, tx).enqueue_parallel([kept])
            with pytest.raises(_BodyError):
                await fail_in(tx)
        assert await transport.get_jobs_by_run(undone.run_id) == []
        assert len(await transport.get_jobs_by_run(kept.run_id)) == 1

    async def test_the_last_of_several_jobs_for_a_stage_stays(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`enqueue_parallel`: one job per run and stage, also where one transaction enqueues for it again."""
        first, other = a_job("run"), a_job("run", stage_id="pack")
        last = a_job("run", priority=9)
        async with persistence.transaction() as tx:
            await _enlisted(transport, tx).enqueue_parallel([first, other])
            await _enlisted(transport, tx).enqueue_parallel([last])
        kept = {job.id for job in await transport.get_jobs_by_run("run")}
        assert kept == {last.id, other.id}

    @pytest.mark.parametrize("others", [0, 2])
    async def test_a_job_is_settled_and_replaced_together(
        self, persistence: Persistence, transport: JobTransport, others: int
    ) -> None:
        """`enqueue_parallel`: it replaces the pair's job, also one that the same transaction has settled."""
        await transport.enqueue_parallel([a_job("run")])
        [taken] = await transport.dequeue(worker_id="w")
        again = [a_job("run"), *(a_job("run", stage_id=f"other-{number}") for number in range(others))]
        async with persistence.transaction() as tx:
            enlisted = _enlisted(transport, tx)
            assert await enlisted.complete(taken.job_id, taken.fence) == "acknowledged"
            await enlisted.enqueue_parallel(again)
        kept = await transport.get_jobs_by_run("run")
        assert {job.id for job in kept} == {job.id for job in again}
        assert {(job.status, job.deliveries) for job in kept} == {(Status.PENDING, 0)}

    async def test_a_job_of_somebody_else_is_not_replaced(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`JobQueue`: a superseded acknowledgement raises at the latest at commit, and nothing of it is kept."""
        await transport.enqueue_parallel([a_job("run")])
        [lost] = await transport.dequeue(worker_id="w")
        current = a_job("run")
        await transport.enqueue_parallel([current])

        async def settle() -> None:
            async with persistence.transaction() as tx:
                enlisted = _enlisted(transport, tx)
                if await enlisted.complete(lost.job_id, lost.fence) == "superseded":
                    raise SupersededError(lost.job_id)
                await enlisted.enqueue_parallel([a_job("run")])

        with pytest.raises(SupersededError):
            await settle()
        assert [job.id for job in await transport.get_jobs_by_run("run")] == [current.id]

    async def test_a_delivery_is_undone_with_the_transaction(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`enlist`: a delivery is a write too: undone, the job is there for the next."""
        job, run = a_job(), a_run()
        await transport.enqueue_parallel([job])
        await persistence.create_run(run)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                assert len(await _enlisted(transport, tx).dequeue(worker_id="lost")) == 1
                await tx.update_run(run.id, RunPatch(updated_at=LATER, status=Status.RUNNING))
                raise _BodyError

        with pytest.raises(_BodyError):
            await fail()
        assert await persistence.get_run(run.id) == run
        kept = await self.job(transport, job)
        assert (kept.status, kept.deliveries, kept.worker_id) == (Status.PENDING, 0, None)
        assert [taken.fence.deliveries for taken in await transport.dequeue(worker_id="w")] == [1]

    @pytest.mark.needs("concurrent_writers")
    async def test_a_job_that_an_open_transaction_took_is_skipped(
        self, persistence: Persistence, transport: JobTransport, rival_transport: JobTransport, scale: Scale
    ) -> None:
        """`dequeue`, `cancel_by_run`: jobs that a claimer is taking are skipped, never waited for."""
        first, second = a_job(priority=9), a_job()
        await transport.enqueue_parallel([first, second])
        async with persistence.transaction() as tx:
            [taken] = await _enlisted(transport, tx).dequeue(worker_id="w1")
            assert taken.job_id == first.id
            assert await scale.soon(rival_transport.cancel_by_run(first.run_id)) == 0
            others = await scale.soon(rival_transport.dequeue(worker_id="w2", limit=5))
            assert [job.job_id for job in others] == [second.id]
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"

    @pytest.mark.parametrize("kept", [True, False])
    async def test_an_acknowledgement_shares_the_fate_of_the_outcome(
        self, persistence: Persistence, transport: JobTransport, kept: bool
    ) -> None:
        """`enlist`: acknowledgement, outcome and the next job are kept or undone together."""
        run, job, following = a_run(status=Status.RUNNING), a_job(), a_job()
        await persistence.create_run(run)
        taken = await self.deliver(transport, job)

        async def finish() -> None:
            async with persistence.transaction() as tx:
                await tx.lock_runs([run.id])
                await tx.update_run(run.id, RunPatch(updated_at=LATER, status=Status.COMPLETED))
                enlisted = _enlisted(transport, tx)
                assert await enlisted.complete(taken.job_id, taken.fence) == "acknowledged"
                await enlisted.enqueue_parallel([following])
                if not kept:
                    raise _BodyError

        if kept:
            await finish()
        else:
            with pytest.raises(_BodyError):
                await finish()
        status = await persistence.get_run_status(run.id)
        assert status is (Status.COMPLETED if kept else Status.RUNNING)
        assert (await self.job(transport, job)).status is (Status.COMPLETED if kept else Status.RUNNING)
        assert len(await transport.get_jobs_by_run(following.run_id)) == (1 if kept else 0)

    @pytest.mark.guarantee("stores.fence-refuses-superseded")
    async def test_a_superseded_acknowledgement_is_told_at_the_latest_at_commit(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`SupersededError`: an acknowledgement inside a transaction from somebody who no longer owns the job."""
        run, job = a_run(), a_job()
        await persistence.create_run(run)
        old = await self.deliver(transport, job, "old")
        await transport.defer(job.id, datetime(2000, 1, 1, tzinfo=UTC), "busy", old.fence)
        [new] = await transport.dequeue(worker_id="new")

        async def acknowledge() -> str:
            async with persistence.transaction() as tx:
                await tx.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=9))
                answer = await _enlisted(transport, tx).complete(old.job_id, old.fence)
                if answer == "superseded":
                    raise SupersededError(job.id)
                return answer

        with pytest.raises(SupersededError):
            await acknowledge()
        assert await persistence.get_run(run.id) == run
        assert (await self.job(transport, job)).status is Status.RUNNING
        assert await transport.complete(new.job_id, new.fence) == "acknowledged"
