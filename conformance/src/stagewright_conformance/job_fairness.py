"""Job transports with fairness: no group of jobs takes more than its places."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from stagewright.json_values import Json
from stagewright.ports import GroupsJobs, JobTransport, WorkNotifier
from stagewright.records import DequeuedJob, Fairness, NewJob, ServedDefinition
from stagewright.status import Status
from stagewright_conformance.job_transport import JobTransportSuite, PassTime
from stagewright_conformance.samples import a_job
from stagewright_conformance.suite import Background, Scale

__all__ = ["FairDeliverySuite", "FairTransportSuite", "OpenFair"]

OpenFair: TypeAlias = Callable[[Fairness], JobTransport]
"""Gives a handle of its own on the jobs of `transport`, with that fairness."""

_FAR = datetime(2999, 1, 1, tzinfo=UTC)
_ENDINGS = ("complete", "fail", "retry", "defer", "suspend", "release", "expire", "delete", "replace")


class FairTransportSuite(JobTransportSuite):
    """Fixtures of the suites over a transport that is a `GroupsJobs`.

    Fixtures to override: those of `JobTransportSuite`, and `open_fair` (an `OpenFair`; by `with_fairness` by default).
    """

    @pytest.fixture
    def open_fair(self, transport: JobTransport) -> OpenFair:
        """Opens the transport under test with fairness."""

        def opened(fairness: Fairness) -> JobTransport:
            assert isinstance(transport, GroupsJobs), "the transport is no GroupsJobs"
            return transport.with_fairness(fairness)

        return opened

    @pytest.fixture
    def fair(self, open_fair: OpenFair) -> JobTransport:
        """The transport under test: one RUNNING job for each tenant."""
        return open_fair(Fairness(max_concurrent_per_group=1, group_by="config.tenantId"))

    @pytest.fixture
    def pair(self, open_fair: OpenFair) -> JobTransport:
        """The same with two for each tenant."""
        return open_fair(Fairness(max_concurrent_per_group=2, group_by="config.tenantId"))

    def of(
        self, tenant: Json, *, priority: int = 5, workflow_id: str = "orders", due_at: datetime | None = None
    ) -> NewJob:
        """A job of a tenant."""
        payload: dict[str, Json] = {"config": {"tenantId": tenant}}
        return a_job(priority=priority, workflow_id=workflow_id, due_at=due_at, payload=payload)

    async def take(self, transport: JobTransport, limit: int = 1) -> list[str]:
        """The ids of the jobs that a claim gives."""
        return [job.job_id for job in await transport.dequeue(worker_id="w", limit=limit)]


@pytest.mark.needs("fairness")
class FairDeliverySuite(FairTransportSuite):
    """`GroupsJobs`: which job is delivered next, and which group has to wait.

    Fixtures: those of `FairTransportSuite`.
    """

    async def test_a_group_at_its_cap_is_passed_over(
        self, fair: JobTransport, transport: JobTransport
    ) -> None:
        """`GroupsJobs`: a group that is at its cap is passed over; without fairness groups don't matter."""
        noisy = [self.of("noisy") for _ in range(5)]
        quiet = self.of("quiet")
        await fair.enqueue_parallel([*noisy, quiet])
        assert await fair.depth() == 6
        assert await self.take(fair) == [noisy[0].id]
        assert await self.take(fair) == [quiet.id]
        assert await self.take(fair) == []
        assert await fair.depth() == await transport.depth() == 4
        assert await self.take(transport, 9) == [job.id for job in noisy[1:]]

    @pytest.mark.guarantee("stores.groups-get-their-places-back")
    @pytest.mark.parametrize("ending", _ENDINGS)
    async def test_a_job_that_leaves_running_frees_its_place(
        self, fair: JobTransport, pass_time: PassTime, lease_unit: timedelta, ending: str
    ) -> None:
        """`GroupsJobs`: a job that leaves RUNNING, in whatever way, frees its place at the commit."""
        first, second = self.of("a", priority=1), self.of("a", priority=1)
        await fair.enqueue_parallel([first, second])
        [taken] = await fair.dequeue(worker_id="w")
        assert await self.take(fair) == []
        await self.end(fair, taken, ending, pass_time, lease_unit)
        places = [job.job_id for job in await fair.dequeue(worker_id="w", limit=5)]
        is_back = ending in ("retry", "release")
        assert places == [first.id if is_back else second.id]
        assert await self.take(fair) == []

    async def end(
        self, transport: JobTransport, job: DequeuedJob, ending: str, pass_time: PassTime, unit: timedelta
    ) -> None:
        """Let a job leave RUNNING."""
        match ending:
            case "complete":
                assert await transport.complete(job.job_id, job.fence) == "acknowledged"
            case "fail" | "retry":
                retry = ending == "retry"
                assert await transport.fail(job.job_id, "no", retry=retry, fence=job.fence) == "acknowledged"
            case "defer":
                assert await transport.defer(job.job_id, _FAR, "later", job.fence) == "acknowledged"
            case "suspend":
                assert await transport.suspend(job.job_id, _FAR, job.fence) == "acknowledged"
            case "release":
                await pass_time(2 * unit)
                assert len((await transport.release_stale(unit)).released) == 1
            case "expire":
                await pass_time(2 * unit)
                assert len(await transport.expire_runaway(unit)) == 1
            case "delete":
                assert await transport.delete_by_run_and_stages(job.run_id, [job.stage_id]) == 1
            case _:
                # The one in its place is of another tenant, and far from due.
                again = a_job(job.run_id, payload={"config": {"tenantId": "b"}}, due_at=_FAR)
                await transport.enqueue_parallel([again])

    async def test_an_acknowledgement_that_is_superseded_frees_no_place(self, fair: JobTransport) -> None:
        """`GroupsJobs`: no more than the cap RUNNING; who doesn't own a job any more changes nothing."""
        jobs = [self.of("a") for _ in range(3)]
        await fair.enqueue_parallel(jobs)
        [old] = await fair.dequeue(worker_id="w")
        await fair.fail(old.job_id, "no", retry=True, fence=old.fence)
        assert await self.take(fair) == [old.job_id]
        assert await fair.complete(old.job_id, old.fence) == "superseded"
        assert await self.take(fair, 3) == []

    async def test_the_order_among_groups_with_room_is_the_same_as_ever(self, pair: JobTransport) -> None:
        """`GroupsJobs`: of the others the order is the same as ever: priority, then age, one by one."""
        wanted = (
            ["a5", "b5", "a5", "b9", "a1", "c5", "c9", "b5", "c1", "a9"],
            ["b9", "c9", "a9", "a5", "b5", "c5"],
        )
        jobs = [self.of(name[0], priority=int(name[1])) for name in wanted[0]]
        await pair.enqueue_parallel(jobs)
        names = {job.id: name for job, name in zip(jobs, wanted[0], strict=True)}
        given = []
        while taken := await self.take(pair):
            given += [names[job_id] for job_id in taken]
        assert given == wanted[1]

    @pytest.mark.parametrize("limit", [2, 4, 6, 20])
    async def test_a_batch_is_what_single_claims_would_give(self, pair: JobTransport, limit: int) -> None:
        """`GroupsJobs`: a group at its cap is passed over also within one batch; the order is the same."""
        names = ["a5", "b5", "a5", "b9", "a1", "c5", "c9", "b5", "c1", "a9"]
        jobs = [self.of(name[0], priority=int(name[1])) for name in names]
        await pair.enqueue_parallel(jobs)
        known = {job.id: name for job, name in zip(jobs, names, strict=True)}
        given = [known[job_id] for job_id in await self.take(pair, limit)]
        assert given == ["b9", "c9", "a9", "a5", "b5", "c5"][:limit]

    async def test_a_batch_counts_what_is_running_already(self, pair: JobTransport) -> None:
        """`GroupsJobs`: no group ever has more than the cap RUNNING."""
        noisy, quiet = [self.of("noisy") for _ in range(5)], [self.of("quiet") for _ in range(3)]
        await pair.enqueue_parallel([*noisy, *quiet])
        assert await self.take(pair) == [noisy[0].id]
        assert await self.take(pair, 10) == [noisy[1].id, quiet[0].id, quiet[1].id]
        assert await self.take(pair, 10) == []

    @pytest.mark.needs("serves_filter")
    async def test_what_is_not_served_is_passed_over_and_yet_counts(self, fair: JobTransport) -> None:
        """`dequeue`: due and served; a RUNNING job of a definition that isn't served has its place all the same."""
        mail, orders = self.of("a", workflow_id="mail", priority=9), self.of("a")
        other = self.of("b", priority=1)
        await fair.enqueue_parallel([mail, orders, other])
        serves = [ServedDefinition("orders", "v1")]
        [taken] = await fair.dequeue(worker_id="w", serves=serves)
        assert taken.job_id == orders.id
        await fair.complete(taken.job_id, taken.fence)
        assert await self.take(fair) == [mail.id]
        await fair.enqueue_parallel([self.of("a")])
        assert [job.job_id for job in await fair.dequeue(worker_id="w", serves=serves, limit=9)] == [other.id]
        assert await fair.dequeue(worker_id="w", serves=[], limit=9) == []

    @pytest.mark.needs("due_times")
    async def test_what_is_not_due_neither_goes_nor_stands_in_the_way(
        self,
        fair: JobTransport,
        pass_time: PassTime,
        clock_now: Callable[[], datetime],
        lease_unit: timedelta,
    ) -> None:
        """`NewJob.due_at`: not to be delivered before; others of its group are."""
        later = self.of("a", priority=9, due_at=clock_now() + 3 * lease_unit)
        now = self.of("a")
        await fair.enqueue_parallel([later, now])
        [taken] = await fair.dequeue(worker_id="w", limit=5)
        assert taken.job_id == now.id
        await fair.complete(taken.job_id, taken.fence)
        assert await self.take(fair) == []
        await pass_time(4 * lease_unit)
        assert await self.take(fair) == [later.id]

    @pytest.mark.guarantee("stores.groups-never-exceed-their-cap")
    @pytest.mark.parametrize("batch", [1, 3])
    async def test_claims_at_once_never_exceed_the_cap(
        self, open_fair: OpenFair, scale: Scale, batch: int
    ) -> None:
        """`GroupsJobs`: no group ever has more than its cap RUNNING, however many callers there are."""
        fairness = Fairness(max_concurrent_per_group=2, group_by="config.tenantId")
        stores = [open_fair(fairness) for _ in range(scale.contenders)]
        for _ in range(5):
            jobs = [self.of(tenant) for tenant in ("a", "b") * scale.contenders]
            await stores[0].enqueue_parallel(jobs)
            tenants = {job.id: str(job.payload["config"]) for job in jobs}
            claims = (store.dequeue(worker_id=f"w{n}", limit=batch) for n, store in enumerate(stores))
            taken = [job for claim in await scale.soon(asyncio.gather(*claims)) for job in claim]
            assert max(Counter(tenants[job.job_id] for job in taken).values()) <= 2
            await self.drop(stores[0], jobs)

    async def drop(self, transport: JobTransport, jobs: Sequence[NewJob]) -> None:
        """Delete jobs, whatever became of them."""
        for job in jobs:
            await transport.delete_by_run_and_stages(job.run_id, [job.stage_id])

    @pytest.mark.guarantee("stores.groups-never-exceed-their-cap")
    async def test_under_contention_every_job_is_delivered_and_no_group_exceeds_its_cap(
        self, open_fair: OpenFair, scale: Scale
    ) -> None:
        """`GroupsJobs`: no more than the cap at a time, and in the end all of them."""
        fairness = Fairness(max_concurrent_per_group=2, group_by="config.tenantId")
        jobs = [self.of(f"tenant {number % 3}") for number in range(scale.rows // 2)]
        await open_fair(fairness).enqueue_parallel(jobs)
        tenants = {job.id: str(job.payload["config"]) for job in jobs}
        running: Counter[str] = Counter()
        done: Counter[str] = Counter()
        most = 0

        async def work(store: JobTransport, name: str) -> None:
            nonlocal most
            while done.total() < len(jobs):
                for job in await store.dequeue(worker_id=name):
                    running[tenants[job.job_id]] += 1
                    most = max(most, *running.values())
                    await asyncio.sleep(0)
                    running[tenants[job.job_id]] -= 1
                    done[job.job_id] += 1
                    assert await store.complete(job.job_id, job.fence) == "acknowledged"
                await asyncio.sleep(0)

        workers = [work(open_fair(fairness), f"worker {number}") for number in range(scale.contenders)]
        await scale.soon(asyncio.gather(*workers))
        assert most <= 2
        assert set(done) == set(tenants)
        assert set(done.values()) == {1}

    @pytest.mark.needs("wake_ups")
    @pytest.mark.parametrize("ending", ["complete", "retry", "release", "delete"])
    async def test_who_waits_is_woken_when_a_place_is_free(
        self,
        fair: JobTransport,
        open_fair: OpenFair,
        background: Background,
        scale: Scale,
        pass_time: PassTime,
        lease_unit: timedelta,
        ending: str,
    ) -> None:
        """`GroupsJobs`: whoever waits for work is woken then, if the transport is a `WorkNotifier`."""
        waiter = open_fair(Fairness(max_concurrent_per_group=1, group_by="config.tenantId"))
        assert isinstance(waiter, WorkNotifier)
        await fair.enqueue_parallel([self.of("a"), self.of("a")])
        [taken] = await fair.dequeue(worker_id="w")
        await self.settle(waiter, scale)
        waiting = background.start(waiter.wait_for_work(timedelta(seconds=scale.patience)))
        assert await scale.still_waits(waiting)
        await self.end(fair, taken, ending, pass_time, lease_unit)
        assert await scale.soon(waiting) is True
        assert len(await waiter.dequeue(worker_id="other")) == 1

    @pytest.mark.needs("wake_ups")
    async def test_who_waits_is_woken_when_a_claim_has_committed(
        self, pair: JobTransport, open_fair: OpenFair, background: Background, scale: Scale
    ) -> None:
        """`GroupsJobs`: a claim that others pass over wakes those who wait once it has committed."""
        waiter = open_fair(Fairness(max_concurrent_per_group=2, group_by="config.tenantId"))
        assert isinstance(waiter, WorkNotifier)
        await pair.enqueue_parallel([self.of("a"), self.of("a")])
        await self.settle(waiter, scale)
        waiting = background.start(waiter.wait_for_work(timedelta(seconds=scale.patience)))
        assert await scale.still_waits(waiting)
        assert len(await self.take(pair)) == 1
        assert await scale.soon(waiting) is True
        assert len(await waiter.dequeue(worker_id="other")) == 1

    async def settle(self, waiter: WorkNotifier, scale: Scale) -> None:
        """Let it listen, and hear all that has been."""
        while await waiter.wait_for_work(timedelta(seconds=scale.moment)):
            pass

    async def test_a_job_is_the_same_to_who_does_it(self, fair: JobTransport) -> None:
        """`dequeue`: RUNNING under `worker_id` with one more delivery and a new `started_at`."""
        job = self.of("a", priority=7)
        await fair.enqueue_parallel([job])
        [taken] = await fair.dequeue(worker_id="worker 1")
        kept = await self.job(fair, job)
        assert (kept.status, kept.worker_id, kept.deliveries) == (Status.RUNNING, "worker 1", 1)
        assert (taken.fence.started_at, taken.fence.deliveries) == (kept.started_at, 1)
        assert (taken.priority, taken.payload) == (7, {"config": {"tenantId": "a"}})
        assert await fair.dequeue(worker_id="w", limit=0) == []
