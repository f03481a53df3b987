"""Job transports whose listing is broken; collected by an inner run alone."""

from stagewright.errors import InvalidCursorError
from stagewright.memory import InMemoryJobTransport
from stagewright.records import JobQuery, JobRecord, Page
from stagewright_conformance import JobListingSuite
from stagewright_test_support.doubles import TransportDoubles


class TurnsPagesRound(InMemoryJobTransport):
    """Each page is turned round."""

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        page = await super().list_jobs(query, limit=limit, cursor=cursor)
        return Page(items=page.items[::-1], next_cursor=page.next_cursor)


class TestTurnsPagesRound(TransportDoubles, JobListingSuite):
    double = TurnsPagesRound


class CountsItsWay(InMemoryJobTransport):
    """A page begins so many jobs after the newest one, whichever that is by then."""

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        everything = await super().list_jobs(query, limit=1_000)
        if cursor is not None and not cursor.isdecimal():
            raise InvalidCursorError(cursor)
        start = int(cursor or 0)
        shown = everything.items[start : start + max(limit, 0)]
        more = 0 < len(shown) < len(everything.items) - start
        return Page(items=shown, next_cursor=str(start + limit) if more else None)


class TestCountsItsWay(TransportDoubles, JobListingSuite):
    double = CountsItsWay


class TakesAnyOfTheFilters(InMemoryJobTransport):
    """A job fits when one of the filters does."""

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        if query.statuses is not None and query.run_id is not None:
            query = JobQuery(statuses=query.statuses)
        return await super().list_jobs(query, limit=limit, cursor=cursor)


class TestTakesAnyOfTheFilters(TransportDoubles, JobListingSuite):
    double = TakesAnyOfTheFilters


class ListsNothingAsEverything(InMemoryJobTransport):
    """No status is any status."""

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        if not query.statuses:
            query = JobQuery(run_id=query.run_id, workflow_id=query.workflow_id)
        return await super().list_jobs(query, limit=limit, cursor=cursor)


class TestListsNothingAsEverything(TransportDoubles, JobListingSuite):
    double = ListsNothingAsEverything


class BeginsAnewOnNonsense(InMemoryJobTransport):
    """A cursor that it never gave is the first page's."""

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        try:
            return await super().list_jobs(query, limit=limit, cursor=cursor)
        except InvalidCursorError:
            return await super().list_jobs(query, limit=limit)


class TestBeginsAnewOnNonsense(TransportDoubles, JobListingSuite):
    double = BeginsAnewOnNonsense
