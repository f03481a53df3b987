"""Job transports: enqueueing and delivery."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from stagewright.ports import JobTransport
from stagewright.records import DequeuedJob, JobRecord, NewJob, ServedDefinition, Serves
from stagewright.status import Status
from stagewright_conformance.samples import ODD_JSON, a_job, exactly, new_id
from stagewright_conformance.suite import Scale, Suite

__all__ = ["JobQueueSuite", "JobTransportSuite", "PassTime"]

PassTime: TypeAlias = Callable[[timedelta], Awaitable[None]]
"""Lets the transport's clock go on by so much."""


class JobTransportSuite(Suite):
    """Fixtures of the suites over a job transport.

    Fixtures to override: `transport` (required: an empty one for each test), `rival_transport` (another handle on
    the same jobs, as a second process has it; the transport itself by default), and where the adapter's clock can be
    set, `pass_time`, `clock_now` and `lease_unit`, which otherwise sleep for real.
    """

    @pytest.fixture
    def transport(self) -> JobTransport:
        """The transport under test, empty."""
        raise NotImplementedError("override the fixture `transport` with an empty transport for each test")

    @pytest.fixture
    def rival_transport(self, transport: JobTransport) -> JobTransport:
        """The same jobs as somebody else sees them."""
        return transport

    @pytest.fixture
    def lease_unit(self) -> timedelta:
        """The step in which time passes in the tests: longer than a few calls of the adapter take."""
        return timedelta(milliseconds=300)

    @pytest.fixture
    def pass_time(self) -> PassTime:
        """Lets time pass on the transport's clock; sleeps by default."""

        async def sleep(time: timedelta) -> None:
            await asyncio.sleep(time.total_seconds())

        return sleep

    @pytest.fixture
    def clock_now(self) -> Callable[[], datetime]:
        """The transport's clock, to within `lease_unit`; this machine's by default."""
        return lambda: datetime.now(UTC)

    async def job(self, transport: JobTransport, job: NewJob) -> JobRecord:
        """The only job of a run, as the transport keeps it."""
        [record] = await transport.get_jobs_by_run(job.run_id)
        return record

    async def deliver(self, transport: JobTransport, job: NewJob, worker_id: str = "worker") -> DequeuedJob:
        """Enqueue a job and take it."""
        await transport.enqueue_parallel([job])
        [taken] = await transport.dequeue(worker_id=worker_id)
        assert taken.job_id == job.id
        return taken


class JobQueueSuite(JobTransportSuite):
    """`JobQueue`: enqueueing and delivery.

    Fixtures: those of `JobTransportSuite`.
    """

    async def test_ids_are_answered_in_the_order_given(self, transport: JobTransport) -> None:
        """`enqueue_parallel`: the jobs' ids, in the order given; nothing for nothing."""
        run_id = new_id("run")
        jobs = [a_job(run_id, stage_id=stage) for stage in ("c", "a", "b")]
        assert await transport.enqueue_parallel(jobs) == [job.id for job in jobs]
        assert {record.id for record in await transport.get_jobs_by_run(run_id)} == {job.id for job in jobs}
        assert await transport.enqueue_parallel([]) == []

    async def test_a_job_is_kept_as_it_was_enqueued(self, transport: JobTransport) -> None:
        """`enqueue_parallel`: a PENDING job with all counters at zero."""
        job = a_job(definition_version="v1", priority=7, payload={"odd": ODD_JSON}, max_worker_losses=4)
        await transport.enqueue_parallel([job])
        kept = await self.job(transport, job)
        assert (kept.id, kept.run_id, kept.workflow_id, kept.stage_id) == (
            job.id,
            job.run_id,
            "orders",
            "price",
        )
        assert (kept.definition_version, kept.priority, kept.status) == ("v1", 7, Status.PENDING)
        assert (kept.max_attempts, kept.max_worker_losses) == (3, 4)
        assert (kept.deliveries, kept.failures, kept.worker_losses, kept.interruptions) == (0, 0, 0, 0)
        assert (kept.worker_id, kept.started_at, kept.locked_at, kept.completed_at, kept.due_at) == (
            None,
        ) * 5
        assert kept.last_error is None
        assert exactly(kept.payload) == exactly({"odd": ODD_JSON})

    async def test_a_delivery_says_all_that_was_enqueued(self, transport: JobTransport) -> None:
        """`dequeue`: the job becomes RUNNING under `worker_id` with one more delivery and a new `started_at`."""
        job = a_job(definition_version="v1", priority=7, payload={"odd": ODD_JSON}, max_worker_losses=4)
        taken = await self.deliver(transport, job, "worker 1")
        said = (taken.run_id, taken.workflow_id, taken.stage_id, taken.definition_version, taken.priority)
        assert said == (job.run_id, "orders", "price", "v1", 7)
        assert (taken.failures, taken.worker_losses, taken.max_attempts, taken.max_worker_losses) == (
            0,
            0,
            3,
            4,
        )
        assert exactly(taken.payload) == exactly({"odd": ODD_JSON})
        kept = await self.job(transport, job)
        assert (kept.status, kept.worker_id, kept.deliveries) == (Status.RUNNING, "worker 1", 1)
        assert (taken.fence.started_at, taken.fence.deliveries) == (kept.started_at, 1)
        assert kept.locked_at is not None
        assert taken.fence.started_at.utcoffset() == timedelta(0)

    async def test_a_payload_is_the_callers_own(self, transport: JobTransport) -> None:
        """`NewJob.payload`: changing it after it went in or came out changes nothing in the store."""
        job = a_job(payload={"list": [1]})
        await transport.enqueue_parallel([job])
        job.payload["list"] = 2
        (await self.job(transport, job)).payload["list"] = 3
        [taken] = await transport.dequeue(worker_id="w")
        taken.payload["more"] = 4
        assert (await self.job(transport, job)).payload == {"list": [1]}

    async def test_nothing_is_delivered_twice_or_from_an_empty_queue(self, transport: JobTransport) -> None:
        """`dequeue`: up to `limit` PENDING jobs."""
        assert await transport.dequeue(worker_id="w", limit=5) == []
        await self.deliver(transport, a_job())
        assert await transport.dequeue(worker_id="w", limit=5) == []

    @pytest.mark.guarantee("stores.jobs-one-per-stage")
    @pytest.mark.parametrize("state", ["pending", "running", "completed", "suspended", "failed", "cancelled"])
    async def test_enqueueing_again_replaces_the_job_of_the_stage(
        self, transport: JobTransport, state: str
    ) -> None:
        """`enqueue_parallel`: replaces the pair's job, whatever its state, by a PENDING one with counters at zero."""
        old = a_job(priority=1)
        if state in ("pending", "cancelled"):
            await transport.enqueue_parallel([old])
        else:
            await self.deliver(transport, old)
        if state == "completed":
            await transport.complete(old.id)
        elif state == "suspended":
            await transport.suspend(old.id, datetime(2999, 1, 1, tzinfo=UTC))
        elif state == "failed":
            await transport.fail(old.id, "no price", retry=False)
        elif state == "cancelled":
            await transport.cancel_by_run(old.run_id)
        new = a_job(old.run_id, priority=9)
        other = a_job(old.run_id, stage_id="ship", priority=0)
        assert await transport.enqueue_parallel([new, other]) == [new.id, other.id]
        kept = {record.stage_id: record for record in await transport.get_jobs_by_run(old.run_id)}
        assert {stage: record.id for stage, record in kept.items()} == {"price": new.id, "ship": other.id}
        job = kept["price"]
        assert (job.status, job.priority, job.worker_id, job.started_at, job.locked_at) == (
            Status.PENDING, 9, None, None, None
        )  # fmt: skip
        assert (job.deliveries, job.failures, job.worker_losses, job.interruptions) == (0, 0, 0, 0)
        assert (job.last_error, job.completed_at, job.due_at) == (None, None, None)
        assert [taken.job_id for taken in await transport.dequeue(worker_id="w", limit=5)] == [
            new.id,
            other.id,
        ]

    async def test_enqueueing_at_once_leaves_one_job(
        self, transport: JobTransport, rival_transport: JobTransport, scale: Scale
    ) -> None:
        """`enqueue_parallel`: there is one job per run and stage, also when several enqueue it."""
        run_id = new_id("run")
        jobs = [a_job(run_id) for _ in range(scale.contenders)]
        stores = (transport, rival_transport)
        enqueued = (stores[n % 2].enqueue_parallel([job]) for n, job in enumerate(jobs))
        assert await scale.soon(asyncio.gather(*enqueued)) == [[job.id] for job in jobs]
        [kept] = await transport.get_jobs_by_run(run_id)
        taken = await transport.dequeue(worker_id="w", limit=scale.contenders)
        assert [job.job_id for job in taken] == [kept.id]

    @pytest.mark.needs("priorities")
    @pytest.mark.guarantee("stores.jobs-in-order")
    async def test_jobs_are_delivered_by_priority_then_age(self, transport: JobTransport) -> None:
        """`dequeue`: higher priority goes first, then the earlier enqueued."""
        jobs = [a_job(priority=priority) for priority in (5, 1, 9, 5, 9, -2)]
        for job in jobs:
            await transport.enqueue_parallel([job])
        wanted = [jobs[place].id for place in (2, 4, 0, 3, 1, 5)]
        assert [job.job_id for job in await transport.dequeue(worker_id="w", limit=4)] == wanted[:4]
        assert [job.job_id for job in await transport.dequeue(worker_id="w", limit=4)] == wanted[4:]

    async def test_jobs_of_one_priority_are_delivered_by_age(self, transport: JobTransport) -> None:
        """`dequeue`: the earlier enqueued goes first, one by one too."""
        jobs = [a_job() for _ in range(5)]
        for job in jobs:
            await transport.enqueue_parallel([job])
        taken = [(await transport.dequeue(worker_id="w"))[0].job_id for _ in jobs]
        assert taken == [job.id for job in jobs]

    @pytest.mark.guarantee("stores.jobs-one-worker-each")
    @pytest.mark.parametrize("batch", [1, 7])
    async def test_under_contention_each_job_is_delivered_once(
        self, transport: JobTransport, rival_transport: JobTransport, scale: Scale, batch: int
    ) -> None:
        """`dequeue`: no two callers get the same job, and every job is got."""
        jobs = [a_job() for _ in range(scale.rows)]
        await transport.enqueue_parallel(jobs)

        owners: list[tuple[str, str]] = []

        async def take_all(store: JobTransport, worker_id: str) -> None:
            while len(owners) < len(jobs):
                taken = await store.dequeue(worker_id=worker_id, limit=batch)
                owners.extend((job.run_id, worker_id) for job in taken)
                await asyncio.sleep(0)

        stores = (transport, rival_transport)
        workers = [take_all(stores[n % 2], f"worker {n}") for n in range(scale.contenders)]
        await scale.soon(asyncio.gather(*workers))
        assert Counter(run_id for run_id, _ in owners) == Counter(job.run_id for job in jobs)
        for run_id, worker_id in owners:
            [kept] = await transport.get_jobs_by_run(run_id)
            assert (kept.worker_id, kept.deliveries) == (worker_id, 1)

    @pytest.mark.needs("due_times")
    async def test_a_job_is_not_delivered_before_it_is_due(
        self,
        transport: JobTransport,
        pass_time: PassTime,
        clock_now: Callable[[], datetime],
        lease_unit: timedelta,
    ) -> None:
        """`NewJob.due_at`: not to be delivered before, whatever its priority."""
        now = clock_now()
        later = a_job(due_at=now + 3 * lease_unit, priority=9)
        past = a_job(due_at=now - lease_unit)
        far = a_job(due_at=now + timedelta(days=365))
        await transport.enqueue_parallel([later, past, far])
        assert await transport.depth() == 1
        assert [job.job_id for job in await transport.dequeue(worker_id="w", limit=5)] == [past.id]
        await pass_time(4 * lease_unit)
        assert await transport.depth() == 1
        assert [job.job_id for job in await transport.dequeue(worker_id="w", limit=5)] == [later.id]
        assert (await self.job(transport, far)).due_at == far.due_at

    @pytest.mark.needs("serves_filter")
    @pytest.mark.parametrize(
        ("serves", "expected"),
        [
            (None, {"orders v1", "orders v2", "orders unpinned", "mail v1"}),
            ([], set()),
            ([ServedDefinition("orders", "v1")], {"orders v1", "orders unpinned"}),
            ([ServedDefinition("orders", "v9")], {"orders unpinned"}),
            ([ServedDefinition("orders", "v2"), ServedDefinition("mail", "v1")],
             {"orders v2", "orders unpinned", "mail v1"}),
            ([ServedDefinition("Orders", "v1"), ServedDefinition("other", "v1")], set()),
        ],
    )  # fmt: skip
    @pytest.mark.guarantee("stores.claims-only-what-is-served")
    async def test_only_what_is_served_is_delivered(
        self, transport: JobTransport, serves: Serves, expected: set[str]
    ) -> None:
        """`Serves`: these pairs and nothing else; None is everything; unpinned needs its workflow named."""
        for name in ("orders v1", "orders v2", "orders unpinned", "mail v1"):
            workflow, version = name.split()
            pinned = None if version == "unpinned" else version
            await transport.enqueue_parallel([a_job(name, workflow_id=workflow, definition_version=pinned)])
        taken = await transport.dequeue(worker_id="w", serves=serves, limit=10)
        assert {job.run_id for job in taken} == expected

    @pytest.mark.needs("serves_filter")
    async def test_a_thousand_definitions_can_be_served(self, transport: JobTransport) -> None:
        """`Serves`: any number of pairs."""
        mine, other = a_job(workflow_id="w1100", definition_version="v1"), a_job(workflow_id="other")
        await transport.enqueue_parallel([other, mine])
        serves = [ServedDefinition(f"w{number}", "v1") for number in range(1_200)]
        taken = await transport.dequeue(worker_id="w", serves=serves, limit=5)
        assert [job.job_id for job in taken] == [mine.id]

    @pytest.mark.needs("serves_filter")
    async def test_what_is_not_served_does_not_use_up_the_limit(self, transport: JobTransport) -> None:
        """`dequeue`: up to `limit` jobs of those that are served."""
        await transport.enqueue_parallel([a_job(workflow_id="mail", priority=9) for _ in range(3)])
        mine = a_job(definition_version="v1")
        await transport.enqueue_parallel([mine])
        taken = await transport.dequeue(worker_id="w", serves=[ServedDefinition("orders", "v1")], limit=1)
        assert [job.job_id for job in taken] == [mine.id]
