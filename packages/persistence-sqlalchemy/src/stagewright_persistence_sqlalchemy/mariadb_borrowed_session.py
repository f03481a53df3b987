"""What is sent on a connection of the caller's to MariaDB, whose settings are the caller's too."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from sqlalchemy import Connection, Executable, Select, literal_column, select, text
from sqlalchemy.engine import CursorResult

from stagewright.errors import TransientPersistenceError
from stagewright.ports import CallersThread
from stagewright_persistence_sqlalchemy.borrowed_session import BorrowedSession
from stagewright_persistence_sqlalchemy.dialect import SKIPPED
from stagewright_persistence_sqlalchemy.engine import LARGEST_STATEMENT
from stagewright_persistence_sqlalchemy.id_lists import id_list
from stagewright_persistence_sqlalchemy.mariadb_sessions import require_room
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.statements.paths import is_of_met_rows
from stagewright_persistence_sqlalchemy.statements.reads import locks_runs, snapshots_of_runs
from stagewright_persistence_sqlalchemy.tables import Tables
from stagewright_persistence_sqlalchemy.vendor_errors import is_savepoint_missing

__all__ = ["MariadbBorrowedSession"]

_NEEDED: Final = frozenset({"STRICT_ALL_TABLES", "SIMULTANEOUS_ASSIGNMENT"})
"""Nothing is cut to fit, and what an update sets, it sets at once."""

_SETTINGS: Final[Executable] = select(
    literal_column("@@sql_mode").label("modes"), literal_column("@@max_allowed_packet").label("largest")
)
_SET_MODES: Final = text("SET sql_mode = :modes")
_UNDONE: Final = (
    "MariaDB has undone your whole transaction, not this command alone; the connection was given up, so that what "
    "comes after can't be committed without what came before"
)


class MariadbBorrowedSession(BorrowedSession):
    """A `Session` on the caller's connection, under whatever isolation level that has."""

    def __init__(
        self,
        tables: Tables,
        connection: Connection,
        thread: CallersThread,
        told_errors: Callable[[], Any],  # Any: a context manager, whose type says no more
    ) -> None:
        super().__init__(connection, thread, told_errors)
        self._tables = tables
        self._largest: int | None = connection.info.get(LARGEST_STATEMENT)
        self._is_set = False

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement and read all its rows, those that a write has met as they are now."""
        require_room(self._largest, parameters)
        if is_of_met_rows(statement):
            # The transaction's snapshot may be older than what a write of its own has run into.
            statement = cast("Select[Any]", statement).with_for_update(read=True)
        rows = await super().fetch(statement, parameters)
        if locks_runs(statement):
            await self._require_current(rows)
        return rows

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Undo what the block did when it raises; the first one sees to it that statements mean what they should."""
        async with self._right_modes(), super().savepoint():
            yield

    async def _require_current(self, locked: Sequence[Row]) -> None:
        """Refuse runs in which something has happened since the transaction began to read.

        Under REPEATABLE READ a locking read sees a run as it is now, and what is read after it is as old as the
        transaction's first read. What changes a run's stages changes its version, or tells an event of it.
        """
        if not locked:
            return
        ids = id_list([row["id"] for row in locked])
        seen = await super().fetch(snapshots_of_runs(self._tables, len(ids)), ids)
        before = {row["id"]: (row["version"], row["event_seq"]) for row in seen}
        for row in locked:
            if before.get(row["id"]) != (row["version"], row["event_seq"]):
                raise TransientPersistenceError(
                    f"run {row['id']!r} has changed since your transaction began to read; dispatch before you read, or "
                    "use READ COMMITTED"
                )

    @asynccontextmanager
    async def _right_modes(self) -> AsyncIterator[None]:
        if self._is_set:
            yield
            return
        [settings] = await super().fetch(_SETTINGS, {})
        self._largest = settings["largest"]
        modes = str(settings["modes"])
        missing = _NEEDED.difference(modes.split(","))
        self._is_set = True
        if not missing:
            yield
            return
        await self.set(_SET_MODES, {"modes": ",".join([modes, *sorted(missing)]).strip(",")})
        try:
            yield
        finally:
            if not self.connection.closed and not self.connection.invalidated:
                await self.set(_SET_MODES, {"modes": modes})

    async def _not_undone(self, error: BaseException, failure: Exception) -> None:
        if not is_savepoint_missing(failure):
            await super()._not_undone(error, failure)
            return
        # To SQLAlchemy the transaction goes on; a commit would keep what comes from now on, and that alone.
        await self._done(self.connection.invalidate)
        error.add_note(_UNDONE)

    def _changed(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        require_room(self._largest, parameters)
        return super()._changed(statement, parameters)

    def _count(self, result: CursorResult[Any]) -> int:
        is_skipped = result.context.isinsert and result.lastrowid == SKIPPED
        return 0 if is_skipped else result.rowcount
