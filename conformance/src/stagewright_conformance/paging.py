"""Paging through listings, while what is listed comes, changes and goes."""

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from stagewright.errors import InvalidCursorError
from stagewright.ports import Persistence, RunReader, StepLedger
from stagewright.records import LogLevel, LogRecord, RunPatch, RunQuery, RunRecord, StepRecord
from stagewright.status import Status
from stagewright_conformance.samples import (
    LATER,
    MOMENT,
    a_log_line,
    a_run,
    a_stage,
    a_step,
    an_event,
    new_id,
)
from stagewright_conformance.suite import PersistenceSuite

__all__ = ["PagingSuite", "StepPagingSuite"]

_LIMIT: Final = 10
_SECOND: Final = timedelta(seconds=1)
_STATUSES: Final = (Status.PENDING, Status.RUNNING, Status.COMPLETED, Status.FAILED)

_Fits = Callable[[RunRecord], bool]
_QUERIES: Final[dict[str, tuple[RunQuery, _Fits]]] = {
    "all": (RunQuery(), lambda run: True),
    "workflow": (RunQuery(workflow_id="orders"), lambda run: run.workflow_id == "orders"),
    "status": (RunQuery(statuses=[Status.PENDING]), lambda run: run.status is Status.PENDING),
    "statuses": (
        RunQuery(statuses=[Status.RUNNING, Status.COMPLETED, Status.FAILED]),
        lambda run: run.status is not Status.PENDING,
    ),
    "version": (RunQuery(definition_version="v1"), lambda run: run.definition_version == "v1"),
    "moment": (
        RunQuery(created_from=MOMENT, created_to=MOMENT + timedelta(microseconds=1)),
        lambda run: run.created_at == MOMENT,
    ),
    "everything": (
        RunQuery(workflow_id="orders", statuses=_STATUSES[:2], definition_version="v1", created_to=LATER),
        lambda run: (
            (run.workflow_id, run.definition_version) == ("orders", "v1") and run.status in _STATUSES[:2]
        ),
    ),
}


def _runs() -> list[RunRecord]:
    """105 runs of one moment and 20 that were created before and started after; in no order of their ids."""
    made = []
    for number in range(125):
        early = max(number - 104, 0)
        run = a_run(
            created_at=MOMENT - early * _SECOND,
            workflow_id="mail" if number % 5 == 0 else "orders",
            status=_STATUSES[number % 4],
            definition_version="v2" if number % 7 == 0 else "v1",
        )
        made.append(replace(run, started_at=LATER) if early else run)
    return made


def _tampered(cursor: str, others: tuple[str, ...]) -> Iterator[object]:
    """What somebody may make of a cursor."""
    yield from (cursor[:-1], cursor[1:], cursor[:-4], cursor + "A", cursor + "=", cursor * 2, "", "=", "null")
    yield from (f" {cursor}", f"{cursor}\n", f"{cursor}\x00", cursor.lower(), cursor.swapcase())
    for place in range(0, len(cursor.rstrip("=")), 7):
        yield cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
    plain = base64.urlsafe_b64decode(cursor)
    for changed in (
        plain[6:],
        plain + b" ",
        plain[:-1],
        plain.replace(b'"', b"'"),
        b"[]",
        b"\xff" * 12,
        b"[" * 9_000,
    ):
        yield base64.urlsafe_b64encode(changed).decode()
    yield from ("ключ", "\ud800", "\x00", "A" * 100_000, cursor.encode(), 5, 0, True, [cursor])
    yield from others


class PagingSuite(PersistenceSuite):
    """`RunReader`: pages of runs, log lines and events, with other writers between them.

    Fixtures: those of `PersistenceSuite`.
    """

    @pytest.mark.parametrize("name", _QUERIES)
    @pytest.mark.guarantee("stores.pages-miss-and-repeat-nothing")
    async def test_runs_that_stay_are_shown_once_while_others_come_and_go(
        self, persistence: Persistence, reader: RunReader, name: str
    ) -> None:
        """`list_runs`: every run that existed at the start exactly once; no page but the last is short."""
        query, fits = _QUERIES[name]
        runs = _runs()
        async with persistence.transaction() as tx:
            for run in runs:
                await tx.create_run(run)
        # Every ninth is purged some time, and every ninth changes its status; the others stay.
        leaving = [run for number, run in enumerate(runs) if number % 9 == 4]
        ending = [run for number, run in enumerate(runs) if number % 9 == 8]
        stay = {run.id for run in runs if fits(run)} - {run.id for run in (*leaving, *ending)}
        seen, cursor = list[RunRecord](), None
        while True:
            page = await reader.list_runs(query, limit=_LIMIT, cursor=cursor)
            assert all(map(fits, page.items))
            seen += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.items) == _LIMIT
            async with persistence.transaction() as tx:
                for moment in (MOMENT, LATER, MOMENT - 30 * _SECOND):
                    await tx.create_run(a_run(created_at=moment, definition_version="v1"))
                if ending:
                    patch = RunPatch(updated_at=LATER, status=Status.CANCELLED)
                    await tx.update_run(ending.pop().id, patch)
            if leaving:
                await persistence.delete_run(leaving.pop(len(leaving) // 2).id)
        shown = [run.id for run in seen]
        assert len(set(shown)) == len(shown)
        assert stay <= set(shown)
        positions = [(run.created_at, run.id) for run in seen]
        assert positions == sorted(positions, reverse=True)

    async def test_a_page_that_ends_with_the_last_run_is_the_last(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`list_runs`: no empty page before the end, nor after it."""
        runs = [a_run() for _ in range(2 * _LIMIT)]
        for run in runs:
            await persistence.create_run(run)
        first = await reader.list_runs(RunQuery(), limit=_LIMIT, cursor=None)
        last = await reader.list_runs(RunQuery(), limit=_LIMIT, cursor=first.next_cursor)
        assert (len(first.items), len(last.items), last.next_cursor) == (_LIMIT, _LIMIT, None)

    @pytest.mark.guarantee("stores.tampered-cursors-are-refused")
    async def test_a_tampered_cursor_is_refused(self, persistence: Persistence, reader: RunReader) -> None:
        """`list_runs`, `list_logs`: `InvalidCursorError` if the cursor was not given by this method."""
        run = a_run()
        await persistence.create_run(run)
        await persistence.create_run(a_run())
        await persistence.append_logs([a_log_line(run.id) for _ in range(2)])
        of_runs = (await reader.list_runs(RunQuery(), limit=1, cursor=None)).next_cursor
        of_logs = (await reader.list_logs(run.id, level=None, limit=1, cursor=None)).next_cursor
        assert of_runs is not None
        assert of_logs is not None
        for cursor in _tampered(of_runs, (of_logs,)):
            with pytest.raises(InvalidCursorError):
                await reader.list_runs(RunQuery(), limit=1, cursor=cursor)  # type: ignore[arg-type]  # some are no text
        for cursor in _tampered(of_logs, (of_runs,)):
            with pytest.raises(InvalidCursorError):
                await reader.list_logs(run.id, level=None, limit=1, cursor=cursor)  # type: ignore[arg-type]  # as above
        assert len((await reader.list_runs(RunQuery(), limit=1, cursor=of_runs)).items) == 1

    @pytest.mark.parametrize("level", [None, "WARN"])
    @pytest.mark.guarantee("stores.pages-miss-and-repeat-nothing")
    async def test_log_lines_of_one_moment_are_shown_once_while_others_are_written(
        self, persistence: Persistence, reader: RunReader, level: LogLevel | None
    ) -> None:
        """`list_logs`: the log lines of a run, or those of one level, page by page."""
        run = a_run()
        await persistence.create_run(run)
        levels: tuple[LogLevel, ...] = ("INFO", "WARN", "WARN")
        lines = [a_log_line(run.id, level=levels[number % 3]) for number in range(105)]
        await persistence.append_logs(lines)
        seen, cursor = list[LogRecord](), None
        while True:
            page = await reader.list_logs(run.id, level=level, limit=_LIMIT, cursor=cursor)
            seen += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.items) == _LIMIT
            await persistence.append_logs([a_log_line(run.id, level="WARN", created_at=MOMENT - _SECOND)])
            if len(seen) < 3 * _LIMIT:
                await persistence.append_logs([a_log_line(run.id, level="WARN", created_at=LATER)])
        shown = [line.id for line in seen]
        assert len(set(shown)) == len(shown)
        assert {line.id for line in lines if level in (None, line.level)} <= set(shown)

    @pytest.mark.guarantee("stores.pages-miss-and-repeat-nothing")
    async def test_events_are_shown_once_while_others_are_appended(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`list_events`: with a sequence above `after`, by sequence."""
        run = a_run()
        await persistence.create_run(run)
        await persistence.append_outbox_events([an_event(run.id) for _ in range(25)])
        shown: list[int] = []
        while page := await reader.list_events(run.id, after=shown[-1] if shown else 0, limit=_LIMIT):
            shown += [event.sequence for event in page]
            if len(shown) <= 2 * _LIMIT:
                await persistence.append_outbox_events([an_event(run.id)])
        assert shown == list(range(1, 28))


class StepPagingSuite(PersistenceSuite):
    """`RunReader.list_steps`, page by page.

    Fixtures: those of `PersistenceSuite`, and `ledger` (required: the step ledger of the same database).
    """

    @pytest.fixture
    def ledger(self) -> StepLedger:
        """The step ledger of the database that `reader` reads."""
        raise NotImplementedError("override the fixture `ledger` with the step ledger of the same database")

    async def _make(self, persistence: Persistence, ledger: StepLedger) -> tuple[RunRecord, list[StepRecord]]:
        """A run with three stages, two of them in one group, and their steps in order."""
        run, other = a_run(), a_run()
        for one in (run, other):
            await persistence.create_run(one)
        places = ((1, 1), (2, 2), (2, 3))
        stages = [
            a_stage(run.id, stage_id=f"s{number}", stage_number=number, execution_group=group)
            for group, number in places
        ]
        elsewhere = a_stage(other.id)
        for stage in (*reversed(stages), elsewhere):
            await persistence.create_stage(stage)
        steps = [
            a_step(stage.id, id=new_id("step"), step_id=f"{number:02}", seq=number // 2)
            for stage in stages
            for number in range(9)
        ]
        for step in (*reversed(steps), a_step(elsewhere.id)):
            await ledger.claim(step)
        return run, sorted(
            steps,
            key=lambda step: ([one.id for one in stages].index(step.stage_record_id), step.seq, step.id),
        )

    @pytest.mark.parametrize("limit", [1, 4, 9, 26, 27, 100])
    @pytest.mark.guarantee("stores.pages-miss-and-repeat-nothing")
    async def test_steps_are_listed_page_by_page(
        self, persistence: Persistence, reader: RunReader, ledger: StepLedger, limit: int
    ) -> None:
        """`list_steps`: by the order of their stages, then by `seq`; the last page has no cursor."""
        run, steps = await self._make(persistence, ledger)
        shown, cursor = list[StepRecord](), None
        while True:
            page = await reader.list_steps(run.id, limit=limit, cursor=cursor)
            shown += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.items) == limit
        assert shown == steps
        assert (await reader.list_steps(run.id, limit=None, cursor=None)).items == tuple(steps)
        assert (await reader.list_steps("no such run", limit=limit, cursor=None)).items == ()

    @pytest.mark.guarantee("stores.pages-miss-and-repeat-nothing")
    async def test_steps_that_stay_are_shown_once_while_others_come_and_go(
        self, persistence: Persistence, reader: RunReader, ledger: StepLedger
    ) -> None:
        """`list_steps`: every step that is there throughout exactly once; also behind one that is gone."""
        run, steps = await self._make(persistence, ledger)
        first = await reader.list_steps(run.id, limit=5, cursor=None)
        await ledger.clear(steps[0].stage_record_id)
        await ledger.claim(a_step(steps[9].stage_record_id, step_id="new", seq=100))
        rest = await reader.list_steps(run.id, limit=100, cursor=first.next_cursor)
        assert first.items == tuple(steps[:5])
        assert [step for step in rest.items if step.step_id != "new"] == steps[9:]
        assert len(rest.items) == 19

    @pytest.mark.guarantee("stores.tampered-cursors-are-refused")
    async def test_a_tampered_cursor_is_refused(
        self, persistence: Persistence, reader: RunReader, ledger: StepLedger
    ) -> None:
        """`list_steps`: `InvalidCursorError` if the cursor was not given by this method for this run."""
        run, _ = await self._make(persistence, ledger)
        other, _ = await self._make(persistence, ledger)
        cursor = (await reader.list_steps(run.id, limit=1, cursor=None)).next_cursor
        of_runs = (await reader.list_runs(RunQuery(), limit=1, cursor=None)).next_cursor
        of_other = (await reader.list_steps(other.id, limit=1, cursor=None)).next_cursor
        assert cursor is not None
        assert of_runs is not None
        assert of_other is not None
        for changed in _tampered(cursor, (of_runs, of_other)):
            with pytest.raises(InvalidCursorError):
                await reader.list_steps(run.id, limit=1, cursor=changed)  # type: ignore[arg-type]  # some are no text
