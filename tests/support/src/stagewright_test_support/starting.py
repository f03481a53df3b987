"""Starts servers for the time of a block, or tells why there is none, as `services` says."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import ParamSpec, Protocol, TypeVar

from stagewright_test_support.servers import ServerError
from stagewright_test_support.services import give_up

__all__ = ["starting"]


class _Stoppable(Protocol):
    def stop(self) -> None: ...


P = ParamSpec("P")
S = TypeVar("S", bound=_Stoppable)


@contextmanager
def starting(start: Callable[P, S]) -> Iterator[Callable[P, S]]:
    """Gives what starts servers, each of which is stopped at the end of the block."""
    with ExitStack() as running:

        def start_one(*args: P.args, **kwargs: P.kwargs) -> S:
            try:
                server = start(*args, **kwargs)
            except ServerError as error:
                give_up(error.server, str(error))
            running.callback(server.stop)
            return server

        yield start_one
