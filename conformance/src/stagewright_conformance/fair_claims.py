"""Fair claims in transactions that stay open."""

import asyncio

import pytest

from stagewright.ports import Enlistable, JobTransport, Persistence
from stagewright.status import Status
from stagewright_conformance.job_fairness import FairTransportSuite, OpenFair
from stagewright_conformance.samples import a_run
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["FairClaimSuite"]


class _BodyError(Exception):
    """What a test's block raises."""


def _enlisted(transport: JobTransport, tx: Persistence) -> JobTransport:
    assert isinstance(transport, Enlistable)
    enlisted = transport.enlist(tx)
    assert isinstance(enlisted, JobTransport)
    return enlisted


@pytest.mark.needs("fairness")
class FairClaimSuite(PersistenceSuite, FairTransportSuite):
    """`GroupsJobs` and `Enlistable`: what a claim has taken and not committed counts.

    Fixtures: those of `PersistenceSuite` and `FairTransportSuite`, both over one database.
    """

    @pytest.mark.guarantee("stores.groups-never-exceed-their-cap")
    async def test_a_claim_that_is_open_counts(
        self,
        persistence: Persistence,
        pair: JobTransport,
        transport: JobTransport,
        background: Background,
        scale: Scale,
    ) -> None:
        """`GroupsJobs`: no more than the cap RUNNING, whatever transactions the callers are in."""
        jobs = [self.of("a") for _ in range(4)]
        await pair.enqueue_parallel(jobs)
        async with persistence.transaction() as tx:
            assert await self.take(_enlisted(pair, tx)) == [jobs[0].id]
            rivals = [background.start(self.take(pair, 4)) for _ in range(3)]
            assert await scale.still_waits(rivals[0]) or await rivals[0] == []
            # Where nobody waits for anybody, the claimer has the rest to itself.
            if rivals[0].done():
                assert await self.take(_enlisted(pair, tx), 4) == [jobs[1].id]
        taken = [job_id for claim in await scale.soon(asyncio.gather(*rivals)) for job_id in claim]
        taken += await self.take(pair, 4)
        kept = [(await self.job(transport, job)).status for job in jobs]
        assert kept.count(Status.RUNNING) == 2
        assert len(taken) <= 1

    @pytest.mark.parametrize("cause", [_BodyError, asyncio.CancelledError])
    async def test_a_claim_that_is_undone_takes_no_place(
        self, persistence: Persistence, fair: JobTransport, cause: type[BaseException]
    ) -> None:
        """`enlist`: the writes are undone with `tx`, and with them the place in the group."""
        jobs = [self.of("a"), self.of("a")]
        await fair.enqueue_parallel(jobs)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                assert len(await self.take(_enlisted(fair, tx))) == 1
                raise cause

        with pytest.raises(cause):
            await fail()
        assert await self.take(fair, 2) == [jobs[0].id]

    async def test_a_claim_that_is_undone_with_its_savepoint_takes_no_place(
        self, persistence: Persistence, fair: JobTransport
    ) -> None:
        """`enlist`: a savepoint undoes the transport's writes too; the transaction may claim again."""
        job, run = self.of("a"), a_run()
        await fair.enqueue_parallel([job, self.of("a")])

        async def fail_in(tx: Persistence) -> None:
            async with tx.transaction() as inner:
                assert await self.take(_enlisted(fair, inner)) == [job.id]
                raise _BodyError

        async with persistence.transaction() as tx:
            await tx.create_run(run)
            with pytest.raises(_BodyError):
                await fail_in(tx)
            assert await self.take(_enlisted(fair, tx), 5) == [job.id]
            assert await self.take(_enlisted(fair, tx), 5) == []
        assert await self.take(fair, 5) == []

    async def test_a_place_that_is_freed_in_the_same_transaction_is_free(
        self, persistence: Persistence, fair: JobTransport
    ) -> None:
        """`GroupsJobs`: a job that leaves RUNNING frees its place; its own transaction knows at once."""
        jobs = [self.of("a"), self.of("a")]
        await fair.enqueue_parallel(jobs)
        [taken] = await fair.dequeue(worker_id="w")
        async with persistence.transaction() as tx:
            enlisted = _enlisted(fair, tx)
            await enlisted.complete(taken.job_id, taken.fence)
            assert await self.take(enlisted, 5) == [jobs[1].id]
        assert await self.take(fair, 5) == []

    async def test_a_place_is_free_once_that_has_committed(
        self, persistence: Persistence, fair: JobTransport, background: Background, scale: Scale
    ) -> None:
        """`GroupsJobs`: a job that leaves RUNNING frees its place at the commit."""
        jobs = [self.of("a"), self.of("a")]
        await fair.enqueue_parallel(jobs)
        [taken] = await fair.dequeue(worker_id="w")
        async with persistence.transaction() as tx:
            await _enlisted(fair, tx).complete(taken.job_id, taken.fence)
            asking = background.start(self.take(fair))
            assert await scale.still_waits(asking) or await asking == []
        assert await scale.soon(asking) or await self.take(fair) == [jobs[1].id]

    @pytest.mark.needs("concurrent_writers")
    async def test_other_groups_are_claimed_meanwhile(
        self, persistence: Persistence, open_fair: OpenFair, fair: JobTransport, scale: Scale
    ) -> None:
        """`GroupsJobs`: a group from which another transaction is claiming isn't waited for."""
        jobs = [self.of("a"), self.of("a"), self.of("b")]
        await fair.enqueue_parallel(jobs)
        async with persistence.transaction() as tx:
            assert await self.take(_enlisted(fair, tx)) == [jobs[0].id]
            assert await scale.soon(self.take(fair, 5)) == [jobs[2].id]
