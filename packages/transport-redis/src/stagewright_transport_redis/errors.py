"""What Redis refuses or can't do, in Stagewright's terms."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from redis import exceptions as vendor
from redis.asyncio import sentinel as aiosentinel
from redis.sentinel import MasterNotFoundError

from stagewright.errors import StagewrightError, TransientError

__all__ = [
    "RedisRefusedError",
    "RedisUnavailableError",
    "is_repeatable",
    "needs_another_connection",
    "translated",
]


class RedisUnavailableError(TransientError):
    """The server couldn't be reached, didn't answer in time, or can't do its work at the moment.

    A call that raises this may have taken effect. Making it again is safe: what it did before is found or replaced,
    and fences tell apart what was delivered twice.
    """


@dataclass(eq=False)
class RedisRefusedError(StagewrightError):
    """The server refuses what it was asked for, and will refuse it again until something is set up differently.

    Attributes:
        problem: What it refuses, and the fix.
    """

    problem: str

    def __str__(self) -> str:
        return self.problem


_PASSING: Final = (
    vendor.ConnectionError,
    vendor.TimeoutError,
    vendor.ReadOnlyError,
    vendor.TryAgainError,
    vendor.ClusterError,
    vendor.RedisClusterException,
    vendor.AskError,
    vendor.OutOfMemoryError,
    OSError,
)
_PASSING_CODES: Final = ("LOADING", "BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED", "MASTERDOWN")
_REPEATABLE_CODES: Final = ("OOM", "READONLY")
_OF_A_SCRIPT: Final = re.compile(r"Error running script .*: -([A-Z]+) ", re.DOTALL)
"""How Redis 6.2 tells what a call within a script was refused for; later ones tell it as if there were no script."""
_NO_MASTER: Final = (MasterNotFoundError, aiosentinel.MasterNotFoundError)
_ASKED: Final = ("HELLO must be called with the client already authenticated", "Authentication required")
_DENIED: Final = (
    vendor.AuthenticationError,
    vendor.AuthenticationWrongNumberOfArgsError,
    vendor.AuthorizationError,
    vendor.NoPermissionError,
)


def is_repeatable(error: BaseException) -> bool:
    """Whether the same call may succeed in a moment: a connection that was lost, a server that is replaced."""
    is_passing = isinstance(error, _PASSING) or _code(error) in _REPEATABLE_CODES
    return is_passing and not isinstance(error, _DENIED) and _last_word(error) is None


def needs_another_connection(error: BaseException) -> bool:
    """Whether connections like this one may lead to a server that was replaced, or nowhere."""
    is_silent = isinstance(error, (TimeoutError, vendor.TimeoutError))
    return is_silent or isinstance(error, vendor.ReadOnlyError) or _code(error) == "READONLY"


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise Stagewright's errors for those of the client, which stay their cause.

    Args:
        place: The server as it may be shown.
    """
    try:
        yield
    except (vendor.RedisError, vendor.RedisClusterException, OSError) as error:
        raise _translation(place, error) from error


def _translation(place: str, error: Exception) -> StagewrightError:
    problem = _last_word(error)
    if problem is not None:
        return RedisRefusedError(f"{place} {problem}")
    if isinstance(error, _DENIED):
        fix = "give one who may run scripts on the namespace's keys and channel"
        return RedisRefusedError(f"{place} refuses this user ({error}); {fix}")
    if isinstance(error, _PASSING):
        return RedisUnavailableError(f"{place} can't be used at the moment: {_said(error)}")
    if _code(error) in (*_PASSING_CODES, *_REPEATABLE_CODES):
        return RedisUnavailableError(f"{place} can't do this at the moment: {error}")
    return RedisRefusedError(f"{place} refused this: {_said(error)}")


def _code(error: BaseException) -> str:
    """The word that an answer begins with where it is an error, unless the client has made a class of it."""
    said = str(error)
    within = _OF_A_SCRIPT.match(said)
    return within[1] if within else said.split(" ")[0]


def _last_word(error: BaseException) -> str | None:
    """What is wrong with the address, if that is why: a server of another kind, or one that wants a password.

    Clients of clusters and sentinels make a lost connection of each of these.
    """
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause)
        if isinstance(cause, vendor.ResponseError) and "cluster support disabled" in text:
            return "is no cluster; write its URL without '+cluster'"
        if isinstance(cause, vendor.ResponseError) and "unknown command" in text and "SENTINEL" in text:
            return "is no sentinel; name the sentinels with their ports, or write the URL without '+sentinel'"
        if isinstance(cause, vendor.AuthenticationError) and any(asked in text for asked in _ASKED):
            return "wants a password, and the URL has none; write it before the host, as in redis://:password@host"
        if isinstance(cause, _NO_MASTER) and "AuthenticationError" in text:
            fix = "give it, and sentinel_username if there is one"
            return f"has sentinels that let nobody in without the right sentinel_password; {fix}"
        is_clusters = isinstance(cause, vendor.RedisClusterException)
        cause = cause.__cause__ or (cause.__context__ if is_clusters else None)
    return None


def _said(error: BaseException) -> str:
    if isinstance(error, _NO_MASTER):
        return "the sentinels can't be reached, or watch no master of that name that works"
    return str(error) or type(error).__name__
