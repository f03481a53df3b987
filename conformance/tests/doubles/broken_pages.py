"""Run readers whose pages are broken; collected by an inner run alone."""

from contextlib import suppress

import pytest

from stagewright.cursors import cursor_after, position_after
from stagewright.errors import InvalidCursorError
from stagewright.memory import InMemoryPersistence, InMemoryStepLedger
from stagewright.ports import Persistence, StepLedger
from stagewright.records import LogLevel, LogRecord, Page, RunQuery, RunRecord, StepRecord
from stagewright_conformance import PagingSuite, StepListingSuite, StepPagingSuite
from stagewright_test_support.doubles import PersistenceDoubles


class GoesOnByTheMoment(InMemoryPersistence):
    """A page goes on with what was created before the last run, of which none has the same moment."""

    async def list_runs(self, query: RunQuery, *, limit: int, cursor: str | None) -> Page[RunRecord]:
        if cursor is not None:
            cursor = cursor_after("runs", (position_after("runs", cursor)[0], ""))
        return await super().list_runs(query, limit=limit, cursor=cursor)


class TestGoesOnByTheMoment(PersistenceDoubles, PagingSuite):
    double = GoesOnByTheMoment


class CountsRuns(InMemoryPersistence):
    """A page begins so many runs after the newest one, whichever that is by then."""

    async def list_runs(self, query: RunQuery, *, limit: int, cursor: str | None) -> Page[RunRecord]:
        if cursor is not None and not cursor.isdecimal():
            raise InvalidCursorError(cursor)
        everything = (await super().list_runs(query, limit=10_000, cursor=None)).items
        end = int(cursor or 0) + limit
        return Page(
            items=everything[end - limit : end], next_cursor=str(end) if end < len(everything) else None
        )


class TestCountsRuns(PersistenceDoubles, PagingSuite):
    double = CountsRuns


class FiltersPages(InMemoryPersistence):
    """A page is cut first, and what doesn't fit is left out of it then."""

    async def list_runs(self, query: RunQuery, *, limit: int, cursor: str | None) -> Page[RunRecord]:
        page = await super().list_runs(RunQuery(), limit=limit, cursor=cursor)
        fitting = {run.id for run in (await super().list_runs(query, limit=10_000, cursor=None)).items}
        return Page(items=tuple(run for run in page.items if run.id in fitting), next_cursor=page.next_cursor)


class TestFiltersPages(PersistenceDoubles, PagingSuite):
    double = FiltersPages


class AlwaysHasMore(InMemoryPersistence):
    """A full page is never the last."""

    async def list_runs(self, query: RunQuery, *, limit: int, cursor: str | None) -> Page[RunRecord]:
        page = await super().list_runs(query, limit=limit, cursor=cursor)
        if len(page.items) < limit:
            return page
        last = page.items[-1]
        return Page(items=page.items, next_cursor=cursor_after("runs", (last.created_at, last.id)))


class TestAlwaysHasMore(PersistenceDoubles, PagingSuite):
    double = AlwaysHasMore


class BelievesCursors(InMemoryPersistence):
    """A cursor of the log is taken for one of another listing, and the other way round."""

    async def list_logs(
        self, run_id: str, *, level: LogLevel | None, limit: int, cursor: str | None
    ) -> Page[LogRecord]:
        if cursor is not None:
            with suppress(InvalidCursorError):
                cursor = cursor_after("logs", position_after("runs", cursor))
        return await super().list_logs(run_id, level=level, limit=limit, cursor=cursor)


class TestBelievesCursors(PersistenceDoubles, PagingSuite):
    double = BelievesCursors


class StepReaderDoubles(PersistenceDoubles):
    """The steps are in the database that the double reads."""

    @pytest.fixture
    def ledger(self, persistence: Persistence) -> StepLedger:
        assert isinstance(persistence, InMemoryPersistence)
        return InMemoryStepLedger(persistence.database)


class SortsStepsBySeq(InMemoryPersistence):
    """All steps of a run are listed by `seq`, whatever their stages."""

    async def list_steps(self, run_id: str, *, limit: int | None, cursor: str | None) -> Page[StepRecord]:
        page = await super().list_steps(run_id, limit=limit, cursor=cursor)
        if limit is not None:
            return page
        return Page(items=tuple(sorted(page.items, key=lambda step: step.seq)), next_cursor=None)


class TestSortsStepsBySeq(StepReaderDoubles, StepListingSuite, StepPagingSuite):
    double = SortsStepsBySeq


class CountsSteps(InMemoryPersistence):
    """A page begins so many steps after the first one, whichever that is by then."""

    async def list_steps(self, run_id: str, *, limit: int | None, cursor: str | None) -> Page[StepRecord]:
        cursor = f"0 {run_id}" if cursor is None else cursor
        start, _, of_run = cursor.partition(" ")
        if not start.isdecimal() or of_run != run_id:
            raise InvalidCursorError(cursor)
        everything = (await super().list_steps(run_id, limit=None, cursor=None)).items
        end = len(everything) if limit is None else int(start) + limit
        more = f"{end} {run_id}" if end < len(everything) else None
        return Page(items=everything[int(start) : end], next_cursor=more)


class TestCountsSteps(StepReaderDoubles, StepPagingSuite):
    double = CountsSteps
