"""Drivers' errors as Stagewright's: decided by type and code, never by an error's prose where there is a code."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import exc

from stagewright.errors import (
    DeadlockError,
    DuplicateRecordError,
    OutcomeUnknownError,
    PersistenceUnavailableError,
    RecordNotFoundError,
    StagewrightError,
    TransientError,
    TransientPersistenceError,
)
from stagewright_persistence_sqlalchemy import mariadb_errors
from stagewright_persistence_sqlalchemy.errors import ValueTooLargeError

__all__ = [
    "OUTDATED_PLAN",
    "is_forbidden",
    "is_savepoint_missing",
    "refusal_of",
    "translated_commit_errors",
    "translated_errors",
]

_DEADLOCK: Final = "40P01"
_UNIQUE: Final = "23505"
_FOREIGN_KEY: Final = "23503"
_READ_ONLY: Final = "25006"
_FAILED: Final = "25P02"
_FORBIDDEN: Final = "42501"
_TOO_LARGE: Final = "54000"
_SQLITE_READ_ONLY: Final = frozenset({8})
OUTDATED_PLAN: Final = "0A000"
"""PostgreSQL's code for a statement that was prepared before an upgrade changed the type of a column of its answer."""

_REFUSED_STATES: Final = frozenset(
    {
        *("40001", "55P03"),  # a conflict, a lock that wasn't given
        *("57014", "25P03", "25P04", "57P05"),  # time limits of the server's own
        OUTDATED_PLAN,
    }
)
_UNAVAILABLE_STATES: Final = frozenset(
    {"57P01", "57P02", "57P03", _READ_ONLY}  # a server that stops, starts, or follows another one
)
_UNAVAILABLE_CLASSES: Final = ("08", "53")  # connections; too little memory, space or slots
# A server that starts, stops or recovers, or is full.
_PASSING: Final = (
    "the database system is",
    "too many clients",
    "remaining connection slots",
    "too many connections",
    # What PgBouncer says of itself, and of a server that it can't reach.
    "no more connections allowed",
    "server login has been failing",
    "query_wait_timeout",
)
_SQLITE_LOCKED: Final = frozenset({5, 6, 15})
"""SQLite's primary codes for a file that others write to."""
_SQLITE_UNAVAILABLE: Final = frozenset({7, 8, 10, 13, 14})
"""SQLite's primary codes for a read-only, full, failing or missing file, and for too little memory."""


class translated_errors:  # noqa: N801 - used like a function
    """Raise what a driver or SQLAlchemy raises as an error of Stagewright's, with the original as its cause."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, StagewrightError):
            translated = _translated(error)
            if translated is not None:
                raise translated from error


@contextmanager
def translated_commit_errors() -> Iterator[None]:
    """Like `translated_errors`, for a commit: when its reply is lost, nobody knows whether it took effect."""
    try:
        with translated_errors():
            yield
    except DeadlockError:
        raise
    except TransientError as error:
        if _is_connection_loss(error.__cause__) and not _was_unsent(error.__cause__):
            raise OutcomeUnknownError(str(error)) from error.__cause__
        raise


def is_forbidden(error: BaseException) -> bool:
    """Whether an error says that PostgreSQL's login has no right to what it tried."""
    return _sqlstate(error) == _FORBIDDEN


def refusal_of(error: BaseException) -> str | None:
    """Why a session of the caller's can't be used as it is, if that is what an error says, and the fix."""
    state = _sqlstate(error)
    is_mariadbs = mariadb_errors.error_number(_chain(error)) in mariadb_errors.READ_ONLY
    if state == _READ_ONLY or is_mariadbs or _has_sqlite_code(error, _SQLITE_READ_ONLY):
        return "it is read-only; the kernel has to write in it"
    if state == _FAILED:
        return "its transaction has failed with an earlier error; roll it back, at least to a savepoint before that"
    return None


def is_savepoint_missing(error: BaseException) -> bool:
    """Whether MariaDB knows nothing of a savepoint: it has undone the whole transaction by itself."""
    return mariadb_errors.error_number(_chain(error)) in mariadb_errors.MISSING_SAVEPOINT


def _was_unsent(error: BaseException | None) -> bool:
    return error is not None and mariadb_errors.error_number(_chain(error)) in mariadb_errors.UNSENT


def _translated(error: Exception) -> StagewrightError | None:
    number = mariadb_errors.error_number(_chain(error))
    if number is not None:
        return _of_mariadb(number, error)
    state = _sqlstate(error)
    if state == _DEADLOCK:
        return DeadlockError(_first_line(error))
    if state == _UNIQUE or _is_sqlite_constraint(error, "UNIQUE"):
        return DuplicateRecordError("row", _first_line(error))
    if state == _FOREIGN_KEY or _is_sqlite_constraint(error, "FOREIGN KEY"):
        return RecordNotFoundError("row", _first_line(error))
    if state == _TOO_LARGE:
        return ValueTooLargeError(_first_line(error))
    if state in _REFUSED_STATES or _has_sqlite_code(error, _SQLITE_LOCKED):
        return TransientPersistenceError(_first_line(error))
    is_away = state is not None and (state in _UNAVAILABLE_STATES or state.startswith(_UNAVAILABLE_CLASSES))
    if is_away or _is_connection_loss(error) or _has_sqlite_code(error, _SQLITE_UNAVAILABLE):
        return PersistenceUnavailableError(_first_line(error))
    if isinstance(error, exc.TimeoutError):
        return PersistenceUnavailableError(_first_line(error))
    return None


def _of_mariadb(number: int, error: Exception) -> StagewrightError | None:
    if number in mariadb_errors.DEADLOCKS:
        return DeadlockError(_first_line(error))
    if number in mariadb_errors.DUPLICATES:
        return DuplicateRecordError("row", _first_line(error))
    if number in mariadb_errors.MISSING:
        return RecordNotFoundError("row", _first_line(error))
    if number in mariadb_errors.TOO_LARGE:
        return ValueTooLargeError(_first_line(error))
    if number in mariadb_errors.REFUSED:
        return TransientPersistenceError(_first_line(error))
    return PersistenceUnavailableError(_first_line(error)) if number in mariadb_errors.UNAVAILABLE else None


def _sqlstate(error: BaseException) -> str | None:
    for one in _chain(error):
        for name in ("sqlstate", "pgcode"):
            state = getattr(one, name, None)
            if isinstance(state, str):
                return state
    return None


def _is_connection_loss(error: BaseException | None) -> bool:
    if error is None:
        return False
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return True
    number = mariadb_errors.error_number(_chain(error))
    if number is not None:
        return number in mariadb_errors.LOST
    lost = (ConnectionError, OSError, asyncio.IncompleteReadError, exc.DisconnectionError)
    names = {
        "ConnectionDoesNotExistError",
        "InterfaceError",
        # asyncpg's, on a connection whose server has said goodbye and which it hasn't seen closed yet.
        "InternalClientError",
        "ConnectionFailureError",
        "CannotConnectNowError",
    }
    state = _sqlstate(error)
    if state is not None and state.startswith(("08", "57P")):
        return True
    if any(isinstance(one, lost) or type(one).__name__ in names for one in _chain(error)):
        return True
    return state is None and any(_is_refused_psycopg(one) for one in _chain(error))


def _is_refused_psycopg(error: BaseException) -> bool:
    """Whether this is psycopg's word for a connection that it didn't get or has lost: it has no code for that.

    What a server itself refuses for good, such as a wrong password, comes as its FATAL; so does what will pass.
    """
    kind, text = type(error), str(error)
    passing = "FATAL" not in text or any(words in text for words in _PASSING)
    return kind.__module__.startswith("psycopg") and kind.__name__ == "OperationalError" and passing


def _has_sqlite_code(error: BaseException, primary: frozenset[int]) -> bool:
    # The primary code is the last byte of the extended one.
    codes = (getattr(one, "sqlite_errorcode", None) for one in _chain(error))
    return any(code & 0xFF in primary for code in codes if code is not None)


def _is_sqlite_constraint(error: BaseException, kind: str) -> bool:
    return any(f"{kind} constraint failed" in str(one) for one in _chain(error))


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in found:
        found.append(one)
        one = getattr(one, "orig", None) or one.__cause__
    return found


def _first_line(error: BaseException) -> str:
    original = getattr(error, "orig", None) or error
    lines = str(original).strip().splitlines()
    return f"{type(original).__name__}: {lines[0] if lines else '(no message)'}"
