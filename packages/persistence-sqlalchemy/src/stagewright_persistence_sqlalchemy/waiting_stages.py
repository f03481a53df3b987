"""Stages that wait, for their time or for a job, and runs that stand still."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import Executable

from stagewright.records import RunRecord, Serves, StoredStage
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.id_lists import id_list
from stagewright_persistence_sqlalchemy.rows import Row, run_of, stage_of
from stagewright_persistence_sqlalchemy.statements import waiting_stages as statements
from stagewright_persistence_sqlalchemy.statements.claims import serves_parameters
from stagewright_persistence_sqlalchemy.tables import Tables

__all__ = ["WaitingStages"]


class _Candidates(Protocol):
    def __call__(
        self, tables: Tables, /, pairs: int | None, *, lock: bool, without: int = 0
    ) -> Executable: ...


class WaitingStages(Connection):
    """`WaitingStageStore`, and the part of `RunStore` that finds what stands still."""

    async def get_suspended_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        """SUSPENDED stages that are due, the earliest first, passing over runs that another transaction holds."""
        return await self._waiting(statements.due_stages, statements.still_due, before, limit, serves)

    async def get_owed_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        """Stages that want a job and have none, the earliest changed first, passing over runs as above."""
        return await self._waiting(statements.owed_stages, statements.still_owed, before, limit, serves)

    async def get_stuck_runs(
        self, before: datetime, *, limit: int, after: str | None = None, serves: Serves = None
    ) -> list[RunRecord]:
        """RUNNING runs in which nothing has changed, and which wait for no time, by id."""
        pairs = _pairs(serves)
        if limit < 1 or pairs == []:
            return []
        parameters = {"before": before, "limit": limit, "after": after or ""} | serves_parameters(pairs or [])
        statement = statements.stuck_runs(self._tables, None if pairs is None else len(pairs))
        return [run_of(row) for row in await self._fetch(statement, parameters)]

    async def _waiting(
        self,
        candidates: _Candidates,
        current: Callable[[Tables, int], Executable],
        before: datetime,
        limit: int,
        serves: Serves,
    ) -> list[StoredStage]:
        pairs = _pairs(serves)
        if limit < 1 or pairs == []:
            return []
        locks = self._transaction is not None
        if locks and not self._database.kind.locks_joined:
            return await self._of_free_runs(candidates, current, before, limit, pairs)
        statement = candidates(self._tables, None if pairs is None else len(pairs), lock=locks)
        parameters: dict[str, Any] = {"before": before, "limit": limit} | serves_parameters(pairs or [])
        found = await self._fetch(statement, parameters)
        if found and locks and self._database.kind.skips_locked:
            # A run that changed just before it was locked is seen as it is now, and its stages as they were.
            found = await self._still(current, found, before)
        return [stage_of(row) for row in found]

    async def _of_free_runs(
        self,
        candidates: _Candidates,
        current: Callable[[Tables, int], Executable],
        before: datetime,
        limit: int,
        pairs: list[tuple[str, str]] | None,
    ) -> list[StoredStage]:
        """The same where a join can't lock its runs alone: they are locked once they are known, and read again."""
        given: dict[str, Any] = {"before": before, "limit": limit} | serves_parameters(pairs or [])
        held: list[str] = []
        while True:
            statement = candidates(
                self._tables, None if pairs is None else len(pairs), lock=False, without=len(held)
            )
            without = {f"without_{number}": run_id for number, run_id in enumerate(held)}
            found = await self._fetch(statement, given | without)
            if not found:
                return []
            run_ids = sorted({row["run_id"] for row in found})
            named = id_list(run_ids)
            locking = statements.lock_running_runs(self._tables, len(named))
            locked = {row["id"] for row in await self._fetch(locking, named)}
            free = await self._still(current, [row for row in found if row["run_id"] in locked], before)
            if free:
                return [stage_of(row) for row in free]
            held += run_ids

    async def _still(
        self, current: Callable[[Tables, int], Executable], found: Sequence[Row], before: datetime
    ) -> list[Row]:
        """Those of the stages that are still to be found, as they are now, in the same order."""
        if not found:
            return []
        places = {row["id"]: place for place, row in enumerate(found)}
        ids = id_list(list(places))
        still = await self._fetch(current(self._tables, len(ids)), ids | {"before": before})
        return sorted(still, key=lambda row: places[row["id"]])


def _pairs(serves: Serves) -> list[tuple[str, str]] | None:
    return None if serves is None else [(pair.workflow_id, pair.version) for pair in serves]
