"""URLs of databases: reading them, choosing a driver, showing them, and errors that name them."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from stagewright.errors import DeadlockError, InvalidSettingError, MissingDriverError, TransientError
from stagewright.plugins.adapters import redacted
from stagewright_persistence_sqlalchemy.errors import DatabaseUnusableError
from stagewright_persistence_sqlalchemy.vendor_errors import translated_errors

__all__ = ["database_url", "named_errors", "shown", "with_driver"]

_DRIVERS: Final = {
    "sqlite": ("aiosqlite",),
    "postgresql": ("asyncpg", "psycopg"),
    "mariadb": ("asyncmy",),
}
"""By database: its drivers, which are modules of the same name, the preferred one first."""


def database_url(text: str) -> URL:
    """Read the URL of an SQLite, PostgreSQL or MariaDB database; `postgres` is `postgresql`.

    Raises:
        InvalidSettingError: If it is none.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        problem = "is no URL of a database, such as sqlite:///app.db or postgresql://user@host/name"
        raise InvalidSettingError("url", redacted(text), problem) from error
    backend, plus, driver = url.drivername.partition("+")
    backend = "postgresql" if backend == "postgres" else backend
    if backend not in _DRIVERS:
        raise InvalidSettingError("url", redacted(text), "is no URL of SQLite, PostgreSQL or MariaDB")
    if plus and driver not in _DRIVERS[backend]:
        usable = " or ".join(f"{backend}+{name}://" for name in _DRIVERS[backend])
        problem = f"names a driver that can't be used here; write {backend}:// or {usable}"
        raise InvalidSettingError("url", redacted(text), problem)
    if url.port is not None and not 0 < url.port < 65_536:
        raise InvalidSettingError("url", redacted(text), "has a port that is not between 1 and 65535")
    return url.set(drivername=f"{backend}{plus}{driver}")


def with_driver(url: URL) -> URL:
    """The URL with the driver that it names, or else with the first that is installed.

    Raises:
        MissingDriverError: If that isn't installed.
    """
    backend, _, named = url.drivername.partition("+")
    wanted = (named,) if named else _DRIVERS[backend]
    for driver in wanted:
        if find_spec(driver) is not None:
            return url.set(drivername=f"{backend}+{driver}")
    raise MissingDriverError(backend, wanted)


def shown(url: URL) -> str:
    """The URL as it may be shown: without its secrets and its driver, with what names its tables."""
    text = url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)
    return redacted(text, whole=("schema", "table_prefix"))


@contextmanager
def named_errors(url: URL) -> Iterator[None]:
    """Raise what a driver or SQLAlchemy raises as an error of Stagewright's that names the database.

    Raises:
        TransientPersistenceError: If it was busy.
        PersistenceUnavailableError: If it couldn't be reached.
        DatabaseUnusableError: If it refused.
    """
    try:
        with translated_errors():
            yield
    except TransientError as error:
        if isinstance(error, DeadlockError):
            raise
        raise type(error)(f"{shown(url)} can't be reached: {error}") from error
    except Exception as error:
        if not _is_vendors(error):
            raise
        raise DatabaseUnusableError(shown(url), _first_line(error)) from error


def _is_vendors(error: Exception) -> bool:
    module = type(error).__module__.partition(".")[0]
    return isinstance(error, SQLAlchemyError | OSError) or module in (
        "asyncpg",
        "asyncmy",
        "psycopg",
        "sqlite3",
    )


def _first_line(error: Exception) -> str:
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
