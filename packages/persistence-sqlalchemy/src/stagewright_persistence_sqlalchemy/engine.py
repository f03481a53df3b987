"""Engines as they have to be: an installed driver, SQLite set up to be safe, pools that notice dead servers."""

import os
import socket
from typing import Any, Final

from sqlalchemy import URL, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, StaticPool

from stagewright.errors import InvalidSettingError
from stagewright_persistence_sqlalchemy.connections_at_hand import ConnectionsAtHand
from stagewright_persistence_sqlalchemy.database_url import database_url, with_driver
from stagewright_persistence_sqlalchemy.idle_transactions import limit_idle_transactions
from stagewright_persistence_sqlalchemy.names import PLAIN_NAMES, Names
from stagewright_persistence_sqlalchemy.pooler import mark_behind_pooler, notice_poolers
from stagewright_persistence_sqlalchemy.sqlite_hints import pass_hints_on
from stagewright_persistence_sqlalchemy.url_parameters import ConnectArguments, checked_parameters, names_in
from stagewright_persistence_sqlalchemy.vendor_errors import OUTDATED_PLAN

__all__ = [
    "LARGEST_STATEMENT",
    "PREPARED_FILE",
    "PREPARED_SQLITE",
    "another_engine",
    "create_engine",
    "is_read_only",
    "lives_in_one_connection",
    "names_of",
    "prepare_sqlite",
]

LARGEST_STATEMENT: Final = "stagewright_largest_statement"
"""Where a connection's `info` says how many bytes its server takes at once."""

PREPARED_FILE: Final = "stagewright_prepared_file"
"""The option of engines on SQLite files whose connections can be used below SQLAlchemy."""

PREPARED_SQLITE: Final = "stagewright_prepared_sqlite"
"""The option of engines on SQLite that are set up by `prepare_sqlite`."""

_READ_ONLY: Final = "stagewright_read_only"
"""The option of engines whose URL says that nothing is to be written."""

_NAMES: Final = "stagewright_names"
"""The option of engines that says what their tables are called."""

_BUSY_TIMEOUT_MS: Final = 30_000
_SILENCE: Final = (
    # Ask after 10 s without a word, three times in 15 s, and wait as long for what was sent to be received.
    ("TCP_KEEPIDLE", 10),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 25_000),
)


def create_engine(
    url: str,
    *,
    pool_size: int = 20,
    schema: str | None = None,
    table_prefix: str | None = None,
    **options: Any,  # Any: SQLAlchemy's own
) -> AsyncEngine:
    """Make an engine.

    Args:
        url: Of an SQLite, PostgreSQL or MariaDB database; without a driver the installed one is chosen, asyncpg first.
            A file of SQLite with `?mode=ro` is opened for reading only.
        pool_size: How many connections are kept at the most.
        schema: PostgreSQL's schema that Stagewright's tables are in, whatever the search path is; also as `?schema=`.
            By default they are found along the search path.
        table_prefix: What the name of everything that Stagewright makes begins with; also as `?table_prefix=`.
        options: Passed on to `create_async_engine`.

    Raises:
        InvalidSettingError: If it is no URL of SQLite, PostgreSQL or MariaDB, or has a parameter that can't be used.
        MissingDriverError: If no driver for the database is installed.
    """
    chosen = with_driver(database_url(url))
    names = names_in(chosen, schema=schema, table_prefix=table_prefix)
    engine = _engine_of(chosen, checked_parameters(chosen), pool_size, options)
    engine.update_execution_options(**{_NAMES: names})
    ConnectionsAtHand.give_to(engine)
    return engine


def names_of(engine: AsyncEngine) -> Names:
    """What the tables are called that are used on an engine."""
    names: Names = engine.get_execution_options().get(_NAMES, PLAIN_NAMES)
    return names


def _engine_of(
    chosen: URL,
    arguments: ConnectArguments,
    pool_size: int,
    options: dict[str, Any],
) -> AsyncEngine:
    if chosen.get_backend_name() != "sqlite":
        server = {"isolation_level": "READ COMMITTED", "pool_pre_ping": False, "pool_timeout": 30}
        engine = create_async_engine(chosen, pool_size=pool_size, max_overflow=0, **(server | options))
        _pass_on(engine, arguments)
        _notice_silence(engine)
        if engine.dialect.driver == "psycopg":
            _drop_outdated_plans(engine)
        if chosen.get_backend_name() == "mariadb":
            _learn_limits(engine)
        elif arguments.pooler:
            mark_behind_pooler(engine)
        elif arguments.pooler is None:
            notice_poolers(engine)
        else:
            limit_idle_transactions(engine)
        return engine
    if chosen.database in (None, "", ":memory:"):
        # One connection for all: another one would be another, empty database.
        engine = create_async_engine(chosen.set(query={}), poolclass=StaticPool, **options)
    else:
        # Whoever takes a connection ends its own transactions; a rollback for good measure would cost as much as one.
        marks = {PREPARED_FILE: True, _READ_ONLY: arguments.is_read_only}
        file: dict[str, Any] = {"pool_timeout": 60, "pool_reset_on_return": None, "execution_options": marks}
        # SQLAlchemy 2.0 opens a file anew for each connection unless it is told so.
        file["poolclass"] = AsyncAdaptedQueuePool
        # SQLAlchemy has its own way to spell what is wanted of a file, and doesn't bear another.
        chosen = chosen.set(query={})
        engine = create_async_engine(chosen, pool_size=pool_size, max_overflow=0, **(options | file))
        _pass_on(engine, arguments)
    _prepare(engine.sync_engine, is_read_only=arguments.is_read_only)
    pass_hints_on(engine)
    return engine


def prepare_sqlite(engine: Engine | AsyncEngine) -> None:
    """Set up an engine of your own on SQLite, right after it was made, so that its sessions can be given to `using`.

    Its transactions begin with BEGIN IMMEDIATE, so that they don't fail when they come to write, and are undone whole,
    savepoints included. Files get a write-ahead log, full synchronisation and foreign keys; writers wait in turn.
    On an engine of this package's `create_engine`, and a second time, it does nothing.

    Raises:
        InvalidSettingError: If the engine is for another database.
    """
    prepared = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    if prepared.dialect.name != "sqlite":
        raise InvalidSettingError("engine", prepared.url, "is not one for SQLite, and needs no preparation")
    if not prepared.get_execution_options().get(PREPARED_SQLITE):
        _prepare(prepared, is_read_only=False)


def another_engine(engine: AsyncEngine) -> AsyncEngine:
    """An engine for the same database, whose connections are made in the same way and are its own."""
    first = engine.sync_engine
    # A recreated pool has the connections' options and what is done with each new one, whoever set them.
    another = Engine(first.pool.recreate(), first.dialect, first.url)
    if first.dialect.name == "sqlite":
        _begin_at_once(another)
    another.update_execution_options(**{_NAMES: names_of(engine)})
    return AsyncEngine(another)


def is_read_only(engine: AsyncEngine) -> bool:
    """Whether its URL says that nothing is to be written; a server decides by the login instead."""
    return bool(engine.get_execution_options().get(_READ_ONLY))


def lives_in_one_connection(engine: AsyncEngine) -> bool:
    """Whether another connection would see another, empty database."""
    if engine.dialect.name != "sqlite":
        return False
    name = engine.url.database
    return name in (None, "", ":memory:") or "mode=memory" in name or ":memory:" in name


def _pass_on(engine: AsyncEngine, arguments: ConnectArguments) -> None:
    # The URL itself stays as it was written, for errors to show.
    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(_dialect: object, _record: object, positional: list[Any], named: dict[str, Any]) -> None:
        arguments.put_into(named, positional)


def _notice_silence(engine: AsyncEngine) -> None:
    """Have the system end connections to a server that has vanished; by itself it waits a quarter of an hour or two."""

    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        driver: Any = connection.driver_connection
        if engine.dialect.driver in ("asyncpg", "asyncmy"):
            _end_when_silent(driver._transport.get_extra_info("socket"))
            return
        # psycopg hands libpq's own parameters on, so those of the URL come first.
        chosen = engine.url.query.keys() & {"keepalives", "keepalives_idle", "tcp_user_timeout"}
        if not chosen:
            with socket.socket(fileno=os.dup(driver.fileno())) as same:
                _end_when_silent(same)


def _drop_outdated_plans(engine: AsyncEngine) -> None:
    """Close connections that prepared statements before an upgrade changed a column; psycopg would go on with those."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def drop(context: ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", None) == OUTDATED_PLAN:
            # The others in the pool are as old.
            context.is_disconnect = True


def _learn_limits(engine: AsyncEngine) -> None:
    """Keep with each connection how much its server takes at once: it hangs up on what is more, without a word."""

    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute("SELECT @@max_allowed_packet")
        row: Any = cursor.fetchone()
        cursor.close()
        record.info[LARGEST_STATEMENT] = int(row[0])


def _end_when_silent(connected: socket.socket | None) -> None:
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SILENCE:
        # Not every system has all of them.
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _prepare(engine: Engine, *, is_read_only: bool) -> None:
    pragmas = [f"busy_timeout={_BUSY_TIMEOUT_MS}", "synchronous=FULL", "foreign_keys=ON"]
    if not is_read_only:
        # The way of writing is a property of the file, which a reader can't change.
        pragmas.append("journal_mode=WAL")

    @event.listens_for(engine, "connect")
    def connect(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        # The driver must not begin transactions by itself: it would begin them too late, and without the lock.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    _begin_at_once(engine)
    engine.update_execution_options(**{PREPARED_SQLITE: True})


def _begin_at_once(engine: Engine) -> None:
    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:  # Any: SQLAlchemy's event types differ by event
        driver = connection.connection.dbapi_connection
        if driver.isolation_level is not None:
            # SQLAlchemy has the driver begin transactions again where an isolation level was chosen, or is given back.
            driver.isolation_level = None
        reading = connection.get_execution_options().get("stagewright_reading")
        # A transaction that begins as a reader can't become a writer while another one writes, whatever the timeout.
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
