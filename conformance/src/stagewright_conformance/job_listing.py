"""Jobs for people to look at, page by page."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from stagewright.errors import InvalidCursorError
from stagewright.ports import JobTransport
from stagewright.records import JobQuery, NewJob, Page
from stagewright.status import Status
from stagewright_conformance.job_transport import JobTransportSuite
from stagewright_conformance.samples import ODD_JSON, a_job, exactly, new_id

__all__ = ["JobListingSuite"]


class JobListingSuite(JobTransportSuite):
    """`JobAdmin.list_jobs`.

    Fixtures: those of `JobTransportSuite`.
    """

    async def _listed(
        self, transport: JobTransport, query: JobQuery | None = None, *, limit: int = 100
    ) -> list[list[str]]:
        """The ids that a listing shows, page by page."""
        pages, cursor = list[list[str]](), None
        while True:
            page = await transport.list_jobs(query or JobQuery(), limit=limit, cursor=cursor)
            pages.append([job.id for job in page.items])
            cursor = page.next_cursor
            if cursor is None:
                return pages

    @pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 100])
    async def test_jobs_are_listed_page_by_page_the_newest_first(
        self, transport: JobTransport, limit: int
    ) -> None:
        """`list_jobs`: by the time they were enqueued, the newest first; the last page has no cursor."""
        run_id = new_id("run")
        jobs = [a_job(run_id if n % 2 else None, stage_id=f"s{n}", priority=n % 3) for n in range(6)]
        await transport.enqueue_parallel(jobs[:3])
        await transport.enqueue_parallel(jobs[3:])
        again = replace(a_job(run_id), stage_id=jobs[1].stage_id)
        await transport.enqueue_parallel([again])
        expected = [again.id, *(job.id for job in reversed(jobs) if job is not jobs[1])]
        pages = await self._listed(transport, limit=limit)
        assert [id for page in pages for id in page] == expected
        assert all(len(page) == limit for page in pages[:-1])
        assert len(pages[-1]) <= limit

    async def test_listed_jobs_say_all_that_is_kept(self, transport: JobTransport) -> None:
        """`list_jobs`: jobs as `get_jobs_by_run` has them; nothing for a limit of none."""
        job = a_job(payload={"odd": ODD_JSON})
        taken = await self.deliver(transport, job)
        await transport.fail(taken.job_id, "no", retry=False, fence=taken.fence)
        page = await transport.list_jobs(JobQuery(), limit=9)
        assert page == Page(items=(await self.job(transport, job),))
        assert exactly(page.items[0].payload) == exactly({"odd": ODD_JSON})
        assert await transport.list_jobs(JobQuery(), limit=0) == Page(items=())

    async def test_following_the_cursor_shows_each_job_once_whatever_becomes_of_it(
        self, transport: JobTransport
    ) -> None:
        """`list_jobs`: shows every job that existed at the start exactly once, also while jobs go on."""
        jobs = [a_job() for _ in range(6)]
        await transport.enqueue_parallel(jobs)
        seen, cursor = list[str](), None
        for _ in range(10):
            page = await transport.list_jobs(JobQuery(), limit=2, cursor=cursor)
            seen += [job.id for job in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
            # The job that the page ended with is gone, others are new or delivered.
            gone = page.items[-1]
            await transport.delete_by_run_and_stages(gone.run_id, [gone.stage_id])
            await transport.enqueue_parallel([a_job(), a_job()])
            await transport.dequeue(worker_id="w")
        assert seen == [job.id for job in reversed(jobs)]

    @pytest.mark.parametrize("limit", [1, 2, 100])
    async def test_a_query_finds_jobs_that_fit_all_its_filters(
        self, transport: JobTransport, limit: int
    ) -> None:
        """`JobQuery`: filters combined with AND; None doesn't filter."""
        run_id, jobs = new_id("run"), dict[str, NewJob]()
        for name in ("completed", "failed", "failed too", "suspended", "running"):
            workflow_id = "mail" if name == "failed too" else "orders"
            jobs[name] = a_job(run_id if " " not in name else None, stage_id=name, workflow_id=workflow_id)
            taken = await self.deliver(transport, jobs[name])
            if name == "completed":
                await transport.complete(taken.job_id)
            elif name == "suspended":
                await transport.suspend(taken.job_id, datetime(2999, 1, 1, tzinfo=UTC))
            elif name != "running":
                await transport.fail(taken.job_id, "no", retry=False)
        jobs["pending"], jobs["cancelled"] = a_job(workflow_id="mail"), a_job(workflow_id="mail")
        await transport.enqueue_parallel([jobs["cancelled"]])
        await transport.cancel_by_run(jobs["cancelled"].run_id)
        await transport.enqueue_parallel([jobs["pending"]])
        for query, expected in (
            (JobQuery(run_id=run_id), "running, suspended, failed, completed"),
            (JobQuery(run_id="no such run"), ""),
            (JobQuery(workflow_id="mail"), "pending, cancelled, failed too"),
            (JobQuery(workflow_id="MAIL"), ""),
            (JobQuery(statuses=[]), ""),
            (JobQuery(statuses=[Status.FAILED]), "failed too, failed"),
            (JobQuery(statuses={Status.SUSPENDED, Status.COMPLETED, Status.CANCELLED}),
             "cancelled, suspended, completed"),
            (JobQuery(statuses=[Status.PENDING, Status.RUNNING, Status.RUNNING]), "pending, running"),
            (JobQuery(statuses=[Status.FAILED, Status.RUNNING], run_id=run_id), "running, failed"),
            (JobQuery(statuses=[Status.FAILED], workflow_id="mail", run_id=run_id), ""),
        ):  # fmt: skip
            pages = await self._listed(transport, query, limit=limit)
            names = {job.id: name for name, job in jobs.items()}
            assert ", ".join(names[id] for page in pages for id in page) == expected

    @pytest.mark.parametrize("cursor", ["", "x", "2031-05-17", "eyJhIjogMX0=", "WyJydW5zIiwgMV0=", "ключ"])
    async def test_a_cursor_that_was_never_given_is_refused(
        self, transport: JobTransport, cursor: str
    ) -> None:
        """`list_jobs`: `InvalidCursorError` if the cursor was not given by this method."""
        await transport.enqueue_parallel([a_job(), a_job()])
        with pytest.raises(InvalidCursorError):
            await transport.list_jobs(JobQuery(), limit=1, cursor=cursor)
