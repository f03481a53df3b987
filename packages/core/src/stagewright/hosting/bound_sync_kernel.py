"""A `SyncKernel` in a transaction of the caller's."""

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar, overload

from stagewright.hosting.errands import Errands
from stagewright.kernel import Kernel
from stagewright.kernel.command import Command

__all__ = ["BoundSyncKernel"]

R = TypeVar("R")

# Any: each call has its own result
_Begin: TypeAlias = Callable[[Callable[[Kernel], Coroutine[Any, Any, Any]]], "Future[Any]"]


class BoundSyncKernel:
    """What `SyncKernel.using` gives: the same kernel, on the caller's session and in the caller's thread.

    The kernel thinks in its own thread; every statement is sent by the thread that calls, which needs no event loop.
    """

    def __init__(self, begin: _Begin, session: object) -> None:
        self._begin = begin
        self._session = session

    @overload
    def dispatch(self, command: Command[R]) -> R: ...
    @overload
    def dispatch(self, command: Mapping[str, object]) -> object: ...
    def dispatch(self, command: Command[Any] | Mapping[str, object]) -> Any:
        """Carry out a command in the session's transaction; nothing of it lasts unless that is committed.

        Args:
            command: A command, or a dict of its fields with its `type`.

        Returns:
            The command's result.

        Raises:
            SessionRefusedError: If the session can't be used; the error says why.
            OwnTransactionsError: If it is a command that can't be a part of another transaction.
            StagewrightError: Whatever the command's own documentation names.
        """
        return self.call(lambda kernel: kernel.dispatch(command))

    def call(self, work: Callable[[Kernel], Coroutine[Any, Any, R]]) -> R:
        """Do something asynchronous with the kernel in the session's transaction, and wait for its result.

        Args:
            work: Such as `lambda kernel: kernel.runs.get(run_id)`; it is called in the kernel's thread.
        """
        errands = Errands()

        async def asked(kernel: Kernel) -> R:
            with errands.asked_for():
                return await work(kernel.using(self._session, thread=errands))

        waiting: Future[R] = self._begin(asked)
        return errands.serve(waiting)
