"""Whether a connection of the caller's is as it has to be."""

from typing import Any, Final

from sqlalchemy import Connection

from stagewright.errors import SessionRefusedError
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind, kind_of
from stagewright_persistence_sqlalchemy.engine import PREPARED_SQLITE
from stagewright_persistence_sqlalchemy.tables import Tables

__all__ = ["require_usable"]

_PREPARE: Final = (
    "call prepare_sqlite(engine) of stagewright_persistence_sqlalchemy right after the engine is made, or make it with "
    "create_engine(url) from there"
)
_LEGACY_TRANSACTION_CONTROL: Final = -1


def require_usable(connection: Connection, tables: Tables, kind: DatabaseKind, name: str) -> None:
    """Begin a transaction on the connection unless one is open, and see that it is one.

    Raises:
        SessionRefusedError: If it is of another kind of database, is in no transaction that could be undone, or is one
            of SQLite that is not set up for it.
    """
    if connection.closed:
        raise SessionRefusedError(name, "it is closed")
    if kind.name == "mariadb" and connection.dialect.name == "mysql":
        fix = "make its engine with mariadb+pymysql:// or mariadb+asyncmy:// in the place of mysql+…"
        raise SessionRefusedError(name, f"it is of SQLAlchemy's dialect for MySQL; {fix}")
    if not _is_of(kind, connection.dialect.name):
        raise SessionRefusedError(
            name, f"it is of {connection.dialect.name}, and the kernel's database is {kind.name}"
        )
    if not connection.in_transaction():
        connection.begin()
    if _commits_each_statement(connection):
        raise SessionRefusedError(
            name,
            "its isolation level is AUTOCOMMIT, so there is no transaction to be a part of; use another one",
        )
    if kind.name == "sqlite":
        _require_prepared(connection, tables, name)


def _is_of(kind: DatabaseKind, dialect_name: str) -> bool:
    try:
        return kind_of(dialect_name) == kind
    except ValueError:
        return False


def _commits_each_statement(connection: Connection) -> bool:
    level = connection.get_execution_options().get("isolation_level")
    driver: Any = connection.connection.dbapi_connection
    # The adapters of asyncpg and psycopg have this; sqlite3's is a number, which `_require_prepared` looks at.
    if str(level).upper() == "AUTOCOMMIT" or getattr(driver, "autocommit", None) is True:
        return True
    asked = getattr(driver, "get_autocommit", None)
    # The drivers for MariaDB know it without asking the server.
    return asked is not None and bool(asked())


def _require_prepared(connection: Connection, tables: Tables, name: str) -> None:
    driver: Any = connection.connection.dbapi_connection
    driver = getattr(driver, "driver_connection", None) or driver
    if not _begins_by_itself(driver) and driver.in_transaction:
        if connection.get_execution_options().get(PREPARED_SQLITE):
            return
        if connection.exec_driver_sql("PRAGMA foreign_keys").scalar():
            # Whoever prepares engines in another way is asked to take the turn of the one writer now.
            connection.exec_driver_sql(f"UPDATE {tables.signals.name} SET count = count WHERE 0")
            return
    raise SessionRefusedError(
        name,
        "its SQLite engine is not set up to begin transactions at once and undo them whole, with foreign keys; "
        + _PREPARE,
    )


def _begins_by_itself(driver: Any) -> bool:  # Any: sqlite3's connection or aiosqlite's
    control = getattr(driver, "autocommit", _LEGACY_TRANSACTION_CONTROL)
    return driver.isolation_level is not None or control != _LEGACY_TRANSACTION_CONTROL
