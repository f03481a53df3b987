"""Drivers' errors as Stagewright's: decided by type and SQLSTATE, never by an error's prose where there is a code."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import exc

from stagewright.errors import (
    DeadlockError,
    DuplicateRecordError,
    OutcomeUnknownError,
    RecordNotFoundError,
    StagewrightError,
    TransientError,
)

__all__ = ["translated_commit_errors", "translated_errors"]

_DEADLOCK: Final = "40P01"
_UNIQUE: Final = "23505"
_FOREIGN_KEY: Final = "23503"
_TRANSIENT_STATES: Final = frozenset({"40001", "55P03", "53300", "57P01", "57P02", "57P03", "25006"})
_TRANSIENT_CLASSES: Final = ("08",)
# A server that starts, stops or recovers, or is full.
_PASSING: Final = (
    "the database system is",
    "too many clients",
    "remaining connection slots",
    "too many connections",
)
_LOCKED: Final = ("database is locked", "database table is locked", "database schema is locked")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise what a driver or SQLAlchemy raises as an error of Stagewright's, with the original as its cause."""
    try:
        yield
    except StagewrightError:
        raise
    except Exception as error:
        translated = _translated(error)
        if translated is None:
            raise
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
        if _is_connection_loss(error.__cause__):
            raise OutcomeUnknownError(str(error)) from error.__cause__
        raise


def _translated(error: Exception) -> StagewrightError | None:
    state = _sqlstate(error)
    if state == _DEADLOCK:
        return DeadlockError(_first_line(error))
    if state == _UNIQUE or _is_sqlite_constraint(error, "UNIQUE"):
        return DuplicateRecordError("row", _first_line(error))
    if state == _FOREIGN_KEY or _is_sqlite_constraint(error, "FOREIGN KEY"):
        return RecordNotFoundError("row", _first_line(error))
    if state is not None and (state in _TRANSIENT_STATES or state.startswith(_TRANSIENT_CLASSES)):
        return TransientError(_first_line(error))
    if _is_connection_loss(error) or isinstance(error, exc.TimeoutError) or _is_locked(error):
        return TransientError(_first_line(error))
    return None


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


def _is_locked(error: BaseException) -> bool:
    return any(text in str(one) for one in _chain(error) for text in _LOCKED)


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
