"""What Redis refuses or can't do, in Stagewright's terms."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from redis import exceptions as vendor

from stagewright.errors import StagewrightError, TransientError

__all__ = ["RedisRefusedError", "RedisUnavailableError", "is_repeatable", "translated"]


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
_PASSING_CODES: Final = ("OOM", "LOADING", "BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED", "MASTERDOWN")
_DENIED: Final = (
    vendor.AuthenticationError,
    vendor.AuthenticationWrongNumberOfArgsError,
    vendor.AuthorizationError,
    vendor.NoPermissionError,
)


def is_repeatable(error: BaseException) -> bool:
    """Whether the same call may succeed in a moment: a connection that was lost, a server that is replaced."""
    return isinstance(error, _PASSING) and not isinstance(error, _DENIED)


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise Stagewright's errors for those of the client, which stay their cause.

    Args:
        place: The server as it may be shown.
    """
    try:
        yield
    except _DENIED as error:
        fix = "give one who may run scripts on the namespace's keys and channel"
        problem = f"{place} refuses this user ({error}); {fix}"
        raise RedisRefusedError(problem) from error
    except _PASSING as error:
        raise RedisUnavailableError(f"{place} can't be used at the moment: {_said(error)}") from error
    except vendor.RedisError as error:
        if _said(error).split(" ")[0] in _PASSING_CODES:
            raise RedisUnavailableError(f"{place} can't do this at the moment: {error}") from error
        raise RedisRefusedError(f"{place} refused this: {_said(error)}") from error


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
