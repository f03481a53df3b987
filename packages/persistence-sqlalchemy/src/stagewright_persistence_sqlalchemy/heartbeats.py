"""Renewing leases over a connection of its own, from threads, past event loops that are busy."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright.errors import PersistenceUnavailableError, TransientError
from stagewright.records import HeldLease
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.engine import another_engine, lives_in_one_connection
from stagewright_persistence_sqlalchemy.mariadb_sessions import sqlalchemy_sessions
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.statements import jobs as statements

__all__ = ["SqlHeartbeats", "heartbeats_of"]

T = TypeVar("T")

_ANSWER_WITHIN: Final = 5.0


class SqlHeartbeats:
    """A `HeartbeatChannel` over an SQL database.

    Drivers are asynchronous, so each call runs a private event loop in the calling thread for as long as it takes.

    Args:
        database: The database.
        engine: An engine for it that nobody else uses.
    """

    def __init__(self, database: Database, engine: AsyncEngine) -> None:
        self._database = database
        self._engine = engine
        self._sessions = sqlalchemy_sessions(engine)
        self._turn = threading.Lock()
        self._runner = asyncio.Runner()
        self._closed = False

    def renew_many(self, leases: Sequence[HeldLease]) -> list[bool]:
        """Renew leases; where a delivery doesn't own its job any more, the answer is False."""
        with self._turn:
            if self._closed:
                raise RuntimeError("this heartbeat channel is closed; open another one")
            return self._run(lambda: self._renew(leases)) if leases else []

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            if not self._closed:
                self._run(self._engine.dispose)
                self._closed = True
                self._runner.close()

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._runner.run(work())
        raise RuntimeError("an event loop runs in this thread; renew leases from a thread of its own")

    async def _renew(self, leases: Sequence[HeldLease]) -> list[bool]:
        try:
            return await self._renew_once(leases)
        except TransientError:
            if not self._database.kind.skips_locked:
                # Where one writer holds everything, its turn has been waited for long enough already.
                raise
            # The connection may have been lost since the last beat, which only using it shows.
            return await self._renew_once(leases)

    async def _renew_once(self, leases: Sequence[HeldLease]) -> list[bool]:
        # SQLite always answers; other writers are waited for by the driver, for a while of its own.
        within = _ANSWER_WITHIN if self._database.kind.skips_locked else None
        try:
            async with asyncio.timeout(within):
                return await self._renew_now(leases)
        except TimeoutError as error:
            raise PersistenceUnavailableError(
                f"the database didn't answer within {_ANSWER_WITHIN:g} s"
            ) from error

    async def _renew_now(self, leases: Sequence[HeldLease]) -> list[bool]:
        async with self._sessions.writing() as session:
            if self._database.kind.composes:
                return await _renew_together(self._database, session, leases)
            if self._database.kind.skips_locked:
                return await _renew_free(self._database, session, leases)
            now = self._database.clock.now()
            statement = statements.touch(self._database.tables, self._database.kind)
            return [bool(await session.execute(statement, _fenced(lease) | {"now": now})) for lease in leases]


def heartbeats_of(database: Database) -> SqlHeartbeats | None:
    """A channel for a database; None if another connection to it would see another, empty one."""
    if lives_in_one_connection(database.engine):
        return None
    return SqlHeartbeats(database, another_engine(database.engine))


async def _renew_together(database: Database, session: Session, leases: Sequence[HeldLease]) -> list[bool]:
    rows = {
        "number": list(range(len(leases))),
        "id": [lease.job_id for lease in leases],
        "fence_started_at": [lease.fence.started_at for lease in leases],
        "fence_deliveries": [lease.fence.deliveries for lease in leases],
    }
    parameters = {f"held_{name}": values for name, values in rows.items()}
    await session.execute(statements.renew_leases(database.tables, database.kind), parameters)
    # What somebody holds was passed over; whether it is owned is what is committed of it.
    owned = {
        row["number"] for row in await session.fetch(statements.owned_leases(database.tables), parameters)
    }
    return [number in owned for number in range(len(leases))]


async def _renew_free(database: Database, session: Session, leases: Sequence[HeldLease]) -> list[bool]:
    """The same in statements that name each lease."""
    parameters: dict[str, Any] = {}
    for number, lease in enumerate(leases):
        parameters |= {
            f"id_{number}": lease.job_id,
            f"fence_started_at_{number}": lease.fence.started_at,
            f"fence_deliveries_{number}": lease.fence.deliveries,
        }
    free = await session.fetch(statements.leased_jobs(database.tables, len(leases), lock=True), parameters)
    if free:
        positions = {f"position_{number}": row["position"] for number, row in enumerate(free)}
        await session.execute(statements.renew_jobs(database.tables, database.kind, len(free)), positions)
    rows = await session.fetch(statements.leased_jobs(database.tables, len(leases), lock=False), parameters)
    owned = {(row["id"], row["started_at"], row["deliveries"]) for row in rows}
    return [(lease.job_id, lease.fence.started_at, lease.fence.deliveries) in owned for lease in leases]


def _fenced(lease: HeldLease) -> dict[str, Any]:
    return {
        "of_id": lease.job_id,
        "fence_started_at": lease.fence.started_at,
        "fence_deliveries": lease.fence.deliveries,
    }
