"""Poolers such as PgBouncer, which lend a connection for a transaction: saying that there is one, and noticing it."""

import logging
from typing import Any, Final, cast

from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy.database_url import shown
from stagewright_persistence_sqlalchemy.idle_transactions import POSTGRES_LIMIT

__all__ = ["DEAF", "UNPREPARED", "is_behind_pooler", "mark_behind_pooler", "notice_poolers"]

_BEHIND_POOLER: Final = "stagewright_behind_pooler"
"""The option of engines whose connections are lent for a transaction."""

_log: Final = logging.getLogger("stagewright.persistence")

DEAF: Final = (
    "a pooler such as PgBouncer passes no notifications on; unless it lends each connection for a whole session, which "
    "pgbouncer=false in the URL says"
)

UNPREPARED: Final[dict[str, dict[str, Any]]] = {
    # Without a name, a statement is sent again with each execution, in one go with it: there is nothing to be found
    # again on another connection.
    "asyncpg": {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": str,
    },
    "psycopg": {"prepare_threshold": None},
}
"""By driver, the arguments of connections on which no statement stays prepared."""


def mark_behind_pooler(engine: AsyncEngine) -> None:
    """Remember that the engine's connections are lent for a transaction."""
    engine.update_execution_options(**{_BEHIND_POOLER: True})


def is_behind_pooler(engine: AsyncEngine) -> bool:
    """Whether the engine's connections are lent for a transaction."""
    return bool(engine.get_execution_options().get(_BEHIND_POOLER))


def notice_poolers(engine: AsyncEngine) -> None:
    """Prepare nothing through a pooler that the URL doesn't name: clients would get each other's statements.

    The statement that finds out limits a server's own session in passing; a pooler's would keep the limit for others.
    """
    unprepared = UNPREPARED[engine.dialect.driver]

    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(
        dialect: Dialect, _record: object, positional: list[Any], named: dict[str, Any]
    ) -> DBAPIConnection:
        if not is_behind_pooler(engine):
            direct: Any = dialect.connect(*positional, **named)  # Any: each driver's adaption of SQLAlchemy's
            try:
                is_own = direct.run_async(_is_the_servers_own)
            except BaseException:
                dialect.do_terminate(direct)
                raise
            if is_own:
                return cast(DBAPIConnection, direct)
            direct.close()
            if not is_behind_pooler(engine):
                mark_behind_pooler(engine)
                # That no notifications come is told by who would listen for them.
                _log.info("%s is behind a pooler: no statement is prepared", shown(engine.url))
        named.update(unprepared)
        return dialect.connect(*positional, **named)


async def _is_the_servers_own(driver: Any) -> bool:  # Any: any driver's connection
    """Whether the process that greeted is the one that answers; nothing is prepared to find out."""
    if hasattr(driver, "get_server_pid"):  # asyncpg's
        question = f"SELECT {POSTGRES_LIMIT} WHERE pg_backend_pid() = {driver.get_server_pid()}"
        status = await driver.execute(question)
        return bool(status == "SELECT 1")
    question = f"SELECT {POSTGRES_LIMIT} WHERE pg_backend_pid() = {driver.info.backend_pid}"
    cursor = await driver.execute(question, prepare=False)
    await driver.commit()
    return bool(cursor.rowcount == 1)
