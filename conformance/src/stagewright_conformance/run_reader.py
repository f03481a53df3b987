"""The run reader: listings for people."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from stagewright.errors import InvalidCursorError
from stagewright.ports import Persistence, RunReader, StepLedger
from stagewright.records import LogRecord, RunQuery, RunRecord, StageRecord
from stagewright.status import Status
from stagewright_conformance.samples import MOMENT, a_log_line, a_run, a_stage, a_step, an_event, new_id
from stagewright_conformance.suite import PersistenceSuite, Scale

__all__ = ["RunReaderSuite", "StepListingSuite"]

_SECOND = timedelta(seconds=1)


async def _pages(reader: RunReader, query: RunQuery, limit: int) -> list[list[RunRecord]]:
    pages: list[list[RunRecord]] = []
    cursor = None
    while True:
        page = await reader.list_runs(query, limit=limit, cursor=cursor)
        pages.append(list(page.items))
        cursor = page.next_cursor
        if cursor is None:
            return pages


class RunReaderSuite(PersistenceSuite):
    """`RunReader`: runs, stages, log lines and events.

    Fixtures: those of `PersistenceSuite`.
    """

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 100])
    async def test_runs_are_listed_page_by_page_the_newest_first(
        self, persistence: Persistence, reader: RunReader, limit: int
    ) -> None:
        """`list_runs`: by `created_at`, then by id, the newest first; the last page has no cursor."""
        runs = [a_run(id=f"{n}-{new_id('run')}", created_at=MOMENT + (n // 3) * _SECOND) for n in range(7)]
        for run in runs:
            await persistence.create_run(run)
        pages = await _pages(reader, RunQuery(), limit)
        newest_first = sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True)
        assert [run for page in pages for run in page] == newest_first
        assert all(len(page) == limit for page in pages[:-1])
        assert len(pages[-1]) <= limit

    async def test_following_the_cursor_shows_each_run_once_while_runs_are_created(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`list_runs`: shows every run that existed at the start exactly once, also while runs are created."""
        runs = [a_run(created_at=MOMENT + n * _SECOND) for n in range(6)]
        for run in runs:
            await persistence.create_run(run)
        seen, cursor = list[str](), None
        for turn in range(10):
            page = await reader.list_runs(RunQuery(), limit=2, cursor=cursor)
            seen += [run.id for run in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
            await persistence.create_run(a_run(created_at=MOMENT + (100 + turn) * _SECOND))
        assert seen == [run.id for run in reversed(runs)]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (RunQuery(), "abcd"),
            (RunQuery(workflow_id="orders"), "abd"),
            (RunQuery(statuses={Status.PENDING}), "ac"),
            (RunQuery(statuses=[Status.FAILED, Status.RUNNING]), "bd"),
            (RunQuery(statuses=[]), ""),
            (RunQuery(definition_version="v1"), "ab"),
            (RunQuery(created_from=MOMENT + _SECOND), "bcd"),
            (RunQuery(created_to=MOMENT + 2 * _SECOND), "ab"),
            (RunQuery(workflow_id="orders", statuses=[Status.PENDING], created_to=MOMENT + 9 * _SECOND), "a"),
            (RunQuery(workflow_id="ORDERS"), ""),
        ],
    )
    async def test_a_query_finds_runs_that_fit_all_its_filters(
        self, persistence: Persistence, reader: RunReader, query: RunQuery, expected: str
    ) -> None:
        """`RunQuery`: filters combined with AND; created at or after, and before."""
        when = [MOMENT + n * _SECOND for n in range(4)]
        for run in (
            a_run(id="a", created_at=when[0], definition_version="v1"),
            a_run(id="b", created_at=when[1], definition_version="v1", status=Status.RUNNING),
            a_run(id="c", created_at=when[2], workflow_id="mail"),
            a_run(id="d", created_at=when[3], definition_version="v2", status=Status.FAILED),
        ):
            await persistence.create_run(run)
        pages = await _pages(reader, query, 2)
        assert sorted(run.id for page in pages for run in page) == list(expected)

    @pytest.mark.parametrize("cursor", ["", "x", "2031-05-17", "eyJhIjogMX0=", "'; --", "ключ"])
    async def test_a_cursor_that_was_never_given_is_refused(
        self, persistence: Persistence, reader: RunReader, cursor: str
    ) -> None:
        """`list_runs`, `list_logs`: `InvalidCursorError` if the cursor was not given by this method."""
        run = a_run()
        await persistence.create_run(run)
        with pytest.raises(InvalidCursorError):
            await reader.list_runs(RunQuery(), limit=1, cursor=cursor)
        with pytest.raises(InvalidCursorError):
            await reader.list_logs(run.id, level=None, limit=1, cursor=cursor)

    async def test_a_run_is_read_by_its_id(self, persistence: Persistence, reader: RunReader) -> None:
        """`get_run`: the run, or None."""
        run = a_run()
        await persistence.create_run(run)
        assert await reader.get_run(run.id) == run
        assert await reader.get_run("no such run") is None

    async def test_stages_are_listed_by_group_then_number(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`list_stages`: by execution group, then by stage number, without what only the engine uses."""
        run = a_run()
        await persistence.create_run(run)
        stages = [
            replace(a_stage(run.id, stage_id=f"s{n}", stage_number=n, execution_group=group), output=[n])
            for n, group in ((3, 2), (2, 1), (1, 1))
        ]
        for stage in stages:
            await persistence.create_stage(stage)
        listed = await reader.list_stages(run.id)
        values: list[dict[str, Any]] = [
            {field.name: getattr(stage, field.name) for field in fields(StageRecord)}
            for stage in reversed(stages)
        ]
        assert [type(stage) for stage in listed] == [StageRecord] * 3
        assert listed == [StageRecord(**value) for value in values]
        assert await reader.list_stages("no such run") == []

    async def test_log_lines_are_listed_page_by_page_the_oldest_first(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`list_logs`: the oldest first, page by page."""
        run, other = a_run(), a_run()
        await persistence.create_run(run)
        await persistence.create_run(other)
        lines = [
            a_log_line(run.id, id=f"{n}-{run.id}", created_at=MOMENT + (n // 2) * _SECOND) for n in range(7)
        ]
        await persistence.append_logs([lines[5], lines[2], a_log_line(other.id)])
        await persistence.append_logs([line for n, line in enumerate(lines) if n not in (5, 2)])
        listed, cursor = list[LogRecord](), None
        while True:
            page = await reader.list_logs(run.id, level=None, limit=2, cursor=cursor)
            listed += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        assert listed == lines

    async def test_log_lines_are_listed_by_level(self, persistence: Persistence, reader: RunReader) -> None:
        """`list_logs`: or those of one level."""
        run = a_run()
        await persistence.create_run(run)
        info, warn = a_log_line(run.id), a_log_line(run.id, level="WARN")
        await persistence.append_logs([info, warn])
        assert (await reader.list_logs(run.id, level="WARN", limit=9, cursor=None)).items == (warn,)
        assert (await reader.list_logs(run.id, level="DEBUG", limit=9, cursor=None)).items == ()

    async def test_events_are_listed_after_a_sequence(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`list_events`: a sequence above `after`, at most `limit`, by sequence."""
        run = a_run()
        await persistence.create_run(run)
        await persistence.append_outbox_events([an_event(run.id) for _ in range(5)])
        for after, limit, expected in ((0, 9, [1, 2, 3, 4, 5]), (2, 2, [3, 4]), (5, 9, []), (0, 1, [1])):
            listed = await reader.list_events(run.id, after=after, limit=limit)
            assert [event.sequence for event in listed] == expected
        assert await reader.list_events("no such run", after=0, limit=9) == []

    @pytest.mark.guarantee("stores.readers-never-wait")
    async def test_reading_does_not_wait_for_a_writer(
        self, persistence: Persistence, reader: RunReader, scale: Scale
    ) -> None:
        """`RunReader`: as committed; nothing here locks or waits."""
        run = a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.lock_runs([run.id])
            await tx.append_outbox_events([an_event(run.id)])
            await tx.append_logs([a_log_line(run.id)])
            await tx.create_stage(a_stage(run.id))
            await tx.get_run(run.id)
            assert (await scale.soon(reader.list_runs(RunQuery(), limit=9, cursor=None))).items == (run,)
            assert await scale.soon(reader.get_run(run.id)) == run
            assert await scale.soon(reader.list_stages(run.id)) == []
            assert await scale.soon(reader.list_events(run.id, after=0, limit=9)) == []
            assert (await scale.soon(reader.list_logs(run.id, level=None, limit=9, cursor=None))).items == ()


class StepListingSuite(PersistenceSuite):
    """`RunReader.list_steps`.

    Fixtures: those of `PersistenceSuite`, and `ledger` (required: the step ledger of the same database).
    """

    @pytest.fixture
    def ledger(self) -> StepLedger:
        """The step ledger of the database that `reader` reads."""
        raise NotImplementedError("override the fixture `ledger` with the step ledger of the same database")

    async def test_steps_are_listed_by_stage_then_seq(
        self, persistence: Persistence, reader: RunReader, ledger: StepLedger
    ) -> None:
        """`list_steps`: the durable steps of a run, by the order of their stages, then by `seq`."""
        run, other = a_run(), a_run()
        await persistence.create_run(run)
        await persistence.create_run(other)
        first = a_stage(run.id, stage_id="z")
        second = a_stage(run.id, stage_id="a", stage_number=2, execution_group=2)
        elsewhere = a_stage(other.id)
        for stage in (second, first, elsewhere):
            await persistence.create_stage(stage)
        steps = [a_step(first.id, step_id="y"), a_step(first.id, step_id="x", seq=2), a_step(second.id)]
        for step in (*reversed(steps), a_step(elsewhere.id)):
            await ledger.claim(step)
        assert (await reader.list_steps(run.id, limit=None, cursor=None)).items == tuple(steps)
        assert (await reader.list_steps("no such run", limit=None, cursor=None)).items == ()
