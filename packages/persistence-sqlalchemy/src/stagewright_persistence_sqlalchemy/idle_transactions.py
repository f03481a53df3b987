"""Ending the transactions of processes that stand still, for whose locks everybody else would wait without end."""

from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry

__all__ = ["MARIADB_LIMIT", "POSTGRES_LIMIT", "limit_idle_transactions"]

_SECONDS: Final = 60
_SETTING: Final = "idle_in_transaction_session_timeout"

# Another limit of the role's, the database's or the URL's stays; 0 can't be told from none being set.
POSTGRES_LIMIT: Final = (
    f"set_config('{_SETTING}', CASE current_setting('{_SETTING}') WHEN '0' THEN '{_SECONDS}s' "
    f"ELSE current_setting('{_SETTING}') END, false)"
)
"""PostgreSQL's expression that limits how long a session's transactions may wait for their next statement."""

MARIADB_LIMIT: Final = (
    f"idle_transaction_timeout = IF(@@idle_transaction_timeout = 0, {_SECONDS}, @@idle_transaction_timeout)"
)
"""MariaDB's assignment that does the same."""


def limit_idle_transactions(engine: AsyncEngine) -> None:
    """Give each new connection to PostgreSQL the limit, with a statement of its own."""

    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        opened: Any = connection  # Any: each driver's adaption of SQLAlchemy's
        opened.run_async(_limit)


async def _limit(driver: Any) -> None:  # Any: any driver's connection
    if hasattr(driver, "get_server_pid"):  # asyncpg's
        await driver.execute(f"SELECT {POSTGRES_LIMIT}")
        return
    await driver.execute(f"SELECT {POSTGRES_LIMIT}", prepare=False)
    await driver.commit()
