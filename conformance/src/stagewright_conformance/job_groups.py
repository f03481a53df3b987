"""Job transports with fairness: which group a job is of."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from stagewright.json_values import Json
from stagewright.ports import GroupsJobs, JobTransport
from stagewright.records import DequeuedJob, Fairness, JobQuery, JobRecord, NewJob
from stagewright.status import Status
from stagewright_conformance.job_fairness import FairTransportSuite, OpenFair
from stagewright_conformance.samples import ODD_TEXTS, a_job

__all__ = ["JobGroupSuite"]

_FAR = datetime(2999, 1, 1, tzinfo=UTC)
_APART: list[Json] = [
    *ODD_TEXTS,
    "a",
    "A",
    "a ",
    "ä",
    0,
    7,
    -1.5,
    True,
    False,
    [],
    [1],
    {},
    {"a": 1},
    "x" * 5_000,
    "x" * 5_001,
]
"""Values of which each is a group of its own."""

_WITHOUT: tuple[dict[str, Json], ...] = (
    {},
    {"config": None},
    {"config": {}},
    {"config": {"tenantId": None}},
    {"config": {"tenantid": "a"}},
    {"config": "tenantId"},
    {"config": ["tenantId"]},
    {"config.tenantId": "a"},
    {"tenantId": "a"},
)
"""Payloads without a value at the path."""


@pytest.mark.needs("fairness")
class JobGroupSuite(FairTransportSuite):
    """`GroupsJobs`: a job is of the group that its key or its payload says, and stays in it.

    Fixtures: those of `FairTransportSuite`.
    """

    async def share(self, transport: JobTransport, *jobs: NewJob) -> None:
        """Assert that jobs are of one group of their own, by taking one."""
        await transport.enqueue_parallel(jobs)
        [taken] = await transport.dequeue(worker_id="w", limit=len(jobs) + 1)
        assert taken.job_id == jobs[0].id
        await transport.complete(taken.job_id, taken.fence)
        for job in jobs:
            await transport.delete_by_run_and_stages(job.run_id, [job.stage_id])

    async def test_it_says_what_it_was_given(self, open_fair: OpenFair, transport: JobTransport) -> None:
        """`fairness`: what it was given; None where groups don't matter."""
        fairness = Fairness(max_concurrent_per_group=3, group_by="config.tenantId")
        fair = open_fair(fairness)
        assert isinstance(fair, GroupsJobs)
        assert isinstance(transport, GroupsJobs)
        assert (fair.fairness, transport.fairness) == (fairness, None)
        assert fair.with_fairness(None).fairness is None
        assert fair.fairness == fairness

    async def test_different_values_are_different_groups(self, fair: JobTransport) -> None:
        """`Fairness`: a text is a group as it is, and any other value the group of its JSON."""
        jobs = [self.of(value) for value in _APART]
        again = [self.of(value) for value in _APART]
        await fair.enqueue_parallel([*jobs, *again, a_job()])
        taken = await fair.dequeue(worker_id="w", limit=len(jobs) * 3)
        assert len(taken) == len(jobs) + 1
        assert [job.job_id for job in taken[:-1]] == [job.id for job in jobs]

    @pytest.mark.parametrize(
        ("one", "other"),
        [(7, "7"), (True, "true"), ({"b": 1, "a": [2]}, {"a": [2], "b": 1}), ("", '""')],
    )
    async def test_a_value_and_the_text_of_its_json_are_one_group(
        self, fair: JobTransport, one: Json, other: Json
    ) -> None:
        """`Fairness`: any other value is the group of its JSON, so that `7` and `"7"` are one."""
        await self.share(fair, self.of(one), self.of(other))

    @pytest.mark.guarantee("stores.jobs-without-a-group-share-a-cap")
    async def test_jobs_without_a_value_are_one_group(self, fair: JobTransport) -> None:
        """`Fairness`: jobs with no value, or null, are one group too, and share one cap."""
        await self.share(fair, *(a_job(payload=payload) for payload in _WITHOUT))

    async def test_without_a_path_only_keys_count(self, open_fair: OpenFair) -> None:
        """`Fairness.group_by`: None leaves groups to `NewJob.group_key`."""
        fair = open_fair(Fairness(max_concurrent_per_group=1))
        await self.share(fair, self.of("a"), self.of("b"))
        keyed = [replace(self.of("a"), group_key=key) for key in ("x", "x", "y")]
        await fair.enqueue_parallel(keyed)
        assert await self.take(fair, 5) == [keyed[0].id, keyed[2].id]

    @pytest.mark.parametrize("path", ["tenant", "a.b.c", "config.tenant id", "ä.ö"])
    async def test_a_path_leads_through_the_payload(self, open_fair: OpenFair, path: str) -> None:
        """`Fairness.group_by`: names with dots between them."""

        def at(value: Json) -> NewJob:
            for name in reversed(path.split(".")):
                value = {name: value}
            assert isinstance(value, dict)
            return a_job(payload=value)

        fair = open_fair(Fairness(max_concurrent_per_group=1, group_by=path))
        jobs = [at("x"), at("x"), at("y"), a_job()]
        await fair.enqueue_parallel(jobs)
        assert await self.take(fair, 9) == [jobs[0].id, jobs[2].id, jobs[3].id]

    async def test_a_key_counts_for_more_than_the_payload(self, fair: JobTransport) -> None:
        """`GroupsJobs`: the `group_key` that it was enqueued with, else the value at `group_by`."""
        keyed = replace(self.of("a"), group_key="b")
        jobs = [keyed, self.of("a"), self.of("b"), replace(a_job(), group_key="a")]
        await fair.enqueue_parallel(jobs)
        assert await self.take(fair, 9) == [jobs[0].id, jobs[1].id]

    @pytest.mark.parametrize("key", ["", "x" * 5_000, "\0", "\ud800", "sha256:0"])
    async def test_any_text_is_a_key(self, fair: JobTransport, transport: JobTransport, key: str) -> None:
        """`NewJob.group_key`: any text, also one that the store can't keep as it is; with and without fairness."""
        await self.share(fair, replace(a_job(), group_key=key), replace(a_job(), group_key=key))
        job = replace(a_job(), group_key=key)
        await transport.enqueue_parallel([job, a_job()])
        assert len(await self.take(fair, 3)) == 2

    async def test_the_group_is_not_shown(self, fair: JobTransport) -> None:
        """`NewJob.group_key`: it isn't shown to whoever executes or lists the job."""
        job = replace(a_job(payload={"config": 1}), group_key="secret tenant")
        await fair.enqueue_parallel([job])
        listed = (await fair.list_jobs(JobQuery(), limit=9)).items
        shown: list[JobRecord | DequeuedJob] = [*listed, *await fair.get_jobs_by_run(job.run_id)]
        shown += await fair.dequeue(worker_id="w")
        shown += await fair.get_jobs_by_run(job.run_id)
        assert len(shown) == 4
        assert all(one.payload == {"config": 1} and "secret" not in repr(one) for one in shown)

    async def test_jobs_from_before_have_no_group(self, transport: JobTransport, fair: JobTransport) -> None:
        """`GroupsJobs`: jobs that were enqueued without fairness are of the group without a value, unless keyed."""
        old = [self.of("a"), self.of("b"), replace(self.of("c"), group_key="d")]
        await transport.enqueue_parallel(old)
        await fair.enqueue_parallel([a_job(), self.of("d"), self.of("a")])
        taken = await self.take(fair, 9)
        assert taken[:2] == [old[0].id, old[2].id]
        assert len(taken) == 3

    @pytest.mark.parametrize("fate", ["retry", "defer", "resume", "release"])
    async def test_a_job_stays_in_its_group(
        self,
        fair: JobTransport,
        pass_time: Any,
        lease_unit: Any,
        fate: str,
        clock_now: Callable[[], datetime],
    ) -> None:
        """`GroupsJobs`: it stays in it when it is suspended, resumed, released or tried again."""
        first, second = replace(a_job(priority=9), group_key="a"), replace(a_job(), group_key="a")
        await fair.enqueue_parallel([first])
        [taken] = await fair.dequeue(worker_id="w")
        match fate:
            case "retry":
                await fair.fail(taken.job_id, "no", retry=True, fence=taken.fence)
            case "defer":
                await fair.defer(taken.job_id, clock_now() - lease_unit, "later", taken.fence)
            case "release":
                await pass_time(2 * lease_unit)
                await fair.release_stale(lease_unit)
            case _:
                await fair.suspend(taken.job_id, _FAR, taken.fence)
                # What it is resumed with doesn't matter to a job that is there.
                [standing] = await fair.resume([replace(a_job(first.run_id), group_key="b")])
                assert (standing.id, standing.status) == (first.id, Status.PENDING)
        await fair.enqueue_parallel([second, replace(a_job(), group_key="b")])
        taken_now = await self.take(fair, 9)
        assert (len(taken_now), taken_now[0]) == (2, first.id)
        assert second.id not in taken_now

    async def test_a_missing_job_is_resumed_in_the_group_of_what_was_asked_for(
        self, fair: JobTransport
    ) -> None:
        """`resume`: one that is missing or has ended is enqueued anew, as by `enqueue_parallel`, with its group."""
        ended = self.of("b")
        await fair.enqueue_parallel([ended])
        [taken] = await fair.dequeue(worker_id="w")
        await fair.complete(taken.job_id, taken.fence)
        await fair.enqueue_parallel([self.of("a", priority=9)])
        again = a_job(ended.run_id, payload={"config": {"tenantId": "a"}})
        await fair.resume([again, self.of("a")])
        assert len(await self.take(fair, 9)) == 1
