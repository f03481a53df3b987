"""Jobs by run, and jobs for people to look at."""

import copy
from collections.abc import Collection, Sequence
from typing import Any, Self

from stagewright.cursors import cursor_after_place, place_after
from stagewright.records import Fairness, JobQuery, JobRecord, Page
from stagewright.status import Status
from stagewright_transport_redis.encoding import Fields, fields_of, record_of, text_of
from stagewright_transport_redis.namespace import Namespace
from stagewright_transport_redis.work_channel import WorkInbox

__all__ = ["RedisJobAdmin"]


class RedisJobAdmin:
    """See `JobAdmin`; and what every handle on the jobs of a namespace has.

    Args:
        namespace: The jobs.
        fairness: A cap on the RUNNING jobs of one group; none unless given.
    """

    def __init__(self, namespace: Namespace, fairness: Fairness | None = None) -> None:
        self._namespace = namespace
        self._scripts = namespace.scripts
        self._fairness = fairness
        self._inbox = WorkInbox(namespace.work)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._namespace.place}, namespace {self._namespace.name!r}>"

    @property
    def fairness(self) -> Fairness | None:
        """What it was given; None where groups don't matter."""
        return self._fairness

    def with_fairness(self, fairness: Fairness | None) -> Self:
        """Another handle on the same jobs, with that fairness or with none; closing one of them closes both."""
        other = copy.copy(self)
        other._fairness = fairness
        other._inbox = WorkInbox(self._namespace.work)
        return other

    async def cancel_by_run(self, run_id: str) -> int:
        """Make a run's PENDING and SUSPENDED jobs CANCELLED."""
        return int(await self._scripts.run("cancel_run", run_id))

    async def delete_by_run_and_stages(self, run_id: str, stage_ids: Collection[str]) -> int:
        """Delete the jobs of these stages, whatever their state, and return how many there were."""
        if not stage_ids:
            return 0
        return int(await self._scripts.run("delete_jobs", run_id, self._is_fair, *sorted(set(stage_ids))))

    async def get_jobs_by_run(self, run_id: str) -> list[JobRecord]:
        """All jobs of a run, by the time they were enqueued."""
        return [record_of(fields) for fields in await self._of_run(run_id)]

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        """Jobs by the time they were enqueued, the newest first."""
        before = None if cursor is None else place_after("jobs", cursor)
        if limit < 1 or (query.statuses is not None and not query.statuses):
            return Page(items=())
        if query.run_id is not None:
            found = [one for one in reversed(await self._of_run(query.run_id)) if _fits(one, query, before)]
        else:
            found = await self._found(query, limit + 1, before)
        shown = found[:limit]
        has_more = len(found) > limit
        return Page(
            items=tuple(map(record_of, shown)),
            next_cursor=cursor_after_place("jobs", int(shown[-1]["position"])) if has_more else None,
        )

    async def depth(self) -> int:
        """How many jobs are PENDING and due."""
        return int(await self._scripts.run("depth"))

    @property
    def _is_fair(self) -> int:
        return int(self._fairness is not None)

    async def _of_run(self, run_id: str) -> list[Fields]:
        return _as_enqueued(await self._scripts.run("jobs_of_run", run_id))

    async def _found(self, query: JobQuery, wanted: int, before: int | None) -> list[Fields]:
        """Up to so many jobs that fit; each call looks at some of them."""
        statuses = "" if query.statuses is None else f" {' '.join(map(Status, query.statuses))} "
        filters = (int(query.workflow_id is not None), query.workflow_id or "", statuses)
        found, place = list[Fields](), "+inf" if before is None else str(before)
        while place and len(found) < wanted:
            answer = await self._scripts.run("list_jobs", place, wanted - len(found), *filters)
            place = text_of(answer[0])
            found += map(fields_of, answer[1])
        return found


def _fits(job: Fields, query: JobQuery, before: int | None) -> bool:
    return (
        (before is None or int(job["position"]) < before)
        and query.workflow_id in (None, job["workflow_id"])
        and (query.statuses is None or job["status"] in query.statuses)
    )


def _as_enqueued(answers: Sequence[Any]) -> list[Fields]:  # Any: what the client makes of lists
    return sorted(map(fields_of, answers), key=lambda job: int(job["position"]))
