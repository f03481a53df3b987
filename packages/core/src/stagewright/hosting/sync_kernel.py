"""The kernel for code without an event loop: one thread with a loop, and a kernel in it."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self, TypeVar, overload

from stagewright.errors import InvalidSettingError
from stagewright.hosting.bound_sync_kernel import BoundSyncKernel
from stagewright.kernel import Kernel
from stagewright.kernel.command import Command
from stagewright.system import HomeProcess

__all__ = ["SyncKernel"]

R = TypeVar("R")

_FACTORY: Final = (
    "must be a function that opens a kernel, as in SyncKernel(lambda: open_kernel(workflow, url))"
)

KernelFactory = Callable[[], AbstractAsyncContextManager[Kernel]]


class SyncKernel:
    """The same `dispatch` for scripts, Flask and Django: `SyncKernel(lambda: open_kernel(workflow, url))`.

    It may be used from several threads at once. Opening happens when it is made, closing with `close()` or at the end
    of a `with` block.
    """

    def __init__(self, kernel_factory: KernelFactory) -> None:
        """Start the thread and open the kernel.

        Args:
            kernel_factory: Called once, in the new thread; gives an async context manager of a kernel.

        Raises:
            InvalidSettingError: If it can't be called, or gives something else.
            Exception: Whatever opening the kernel raises.
        """
        # An async context manager made by a decorated function can be called as well, as a decorator.
        if not callable(kernel_factory) or isinstance(kernel_factory, AbstractAsyncContextManager):
            raise InvalidSettingError("kernel_factory", kernel_factory, _FACTORY)
        self._home = HomeProcess()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._opened: Future[Kernel] = Future()
        self._ended: Future[None] = Future()
        self._leave = asyncio.Event()
        self._under_way: set[Future[Any]] = set()  # Any: each call has its own result
        self._thread = threading.Thread(
            target=self._work, args=(kernel_factory,), name="stagewright-kernel", daemon=True
        )
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self._closed = True
            raise

    @overload
    def dispatch(self, command: Command[R]) -> R: ...
    @overload
    def dispatch(self, command: Mapping[str, object]) -> object: ...
    def dispatch(self, command: Command[Any] | Mapping[str, object]) -> Any:
        """Carry out a command and wait for its result.

        Args:
            command: A command, or a dict of its fields with its `type`.

        Returns:
            The command's result.

        Raises:
            RuntimeError: If this is closed, belongs to the process before a fork, or is called in its own thread.
            StagewrightError: Whatever the command's own documentation names.
        """
        return self.call(lambda kernel: kernel.dispatch(command))

    def call(self, work: Callable[[Kernel], Coroutine[Any, Any, R]]) -> R:
        """Do something asynchronous with the kernel and wait for its result.

        Args:
            work: Such as `lambda kernel: kernel.runs.get(run_id)`; it is called in the kernel's thread.

        Raises:
            RuntimeError: If this is closed, belongs to the process before a fork, or is called in its own thread.
        """
        waiting = self._begin(work)
        try:
            return waiting.result()
        except BaseException:
            # An interrupted caller doesn't leave its work behind; a result that came is not disturbed by this.
            waiting.cancel()
            raise

    def using(self, session: object) -> BoundSyncKernel:
        """The same kernel in a transaction of the caller's: SQLAlchemy's `Session` or `Connection`.

        Everything is sent in the thread that calls, which needs no event loop and may have one that runs. What
        `Kernel.using` says of transactions holds here too.

        Args:
            session: The session or connection, of the kernel's own database. Whether it can be used is found out by the
                first call.
        """
        self._refuse_misuse()
        return BoundSyncKernel(self._begin, session)

    def close(self) -> None:
        """Wait for what is under way, close the kernel and end the thread.

        A second call does nothing, and nor does one in a process that was forked.

        Raises:
            Exception: Whatever closing the kernel raises.
        """
        if not self._home.is_here:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()
        self._ended.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, work: Callable[[Kernel], Coroutine[Any, Any, R]]) -> "Future[R]":
        self._refuse_misuse()
        kernel = self._opened.result()
        with self._lock:
            if self._closed:
                raise RuntimeError("this SyncKernel is closed")
            waiting = asyncio.run_coroutine_threadsafe(_done(work, kernel), self._loop)
            self._under_way.add(waiting)
        waiting.add_done_callback(self._under_way.discard)
        return waiting

    def _refuse_misuse(self) -> None:
        self._home.require("this SyncKernel")
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a SyncKernel waits for its own thread and can't be used in it; await the Kernel itself"
            )

    def _work(self, kernel_factory: KernelFactory) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._keep_open(kernel_factory))
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _keep_open(self, kernel_factory: KernelFactory) -> None:
        opening: object = kernel_factory()
        if not isinstance(opening, AbstractAsyncContextManager):
            if inspect.iscoroutine(opening):
                opening.close()
            raise InvalidSettingError("kernel_factory", kernel_factory, f"gave {opening!r}; it {_FACTORY}")
        async with opening as kernel:
            self._opened.set_result(kernel)
            await self._leave.wait()
            under_way = [asyncio.wrap_future(future) for future in tuple(self._under_way)]
            await asyncio.gather(*under_way, return_exceptions=True)


async def _done(work: Callable[[Kernel], Coroutine[Any, Any, R]], kernel: Kernel) -> R:
    return await work(kernel)
