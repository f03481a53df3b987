"""Threads for plain `def` bodies: one each, so that bodies never wait for one another or for a pool."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["BodyRaisedError", "run_in_own_thread"]

R = TypeVar("R")


class BodyRaisedError(RuntimeError):
    """A body raised something that an event loop takes for its own, such as `StopIteration` or `SystemExit`.

    Attributes:
        error: What it raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the body raised {type(error).__name__}")
        self.error = error


async def run_in_own_thread(function: Callable[[], R], *, name: str) -> R:
    """Run a blocking function in a daemon thread of its own, with the caller's context variables.

    When the awaiting task is cancelled, or times out, the thread goes on by itself: Python can't end a thread. What
    it returns or raises then is dropped, and being a daemon it doesn't keep the process alive.

    Raises:
        BodyRaisedError: If the function raised something that is no `Exception`, or `StopIteration`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def body() -> None:
        try:
            result = context.run(function)
        except BaseException as error:  # whatever the body raises is the caller's to see
            raised = _raisable(error)
            _hand_over(loop, done, lambda: done.set_exception(raised))
        else:
            _hand_over(loop, done, lambda: done.set_result(result))

    threading.Thread(target=body, name=name, daemon=True).start()
    return await done


def _hand_over(
    loop: asyncio.AbstractEventLoop, done: "asyncio.Future[R]", settle: Callable[[], None]
) -> None:
    def settle_if_wanted() -> None:
        if not done.done():
            settle()

    try:
        loop.call_soon_threadsafe(settle_if_wanted)
    except RuntimeError:
        # The loop has ended, so nobody waits for this body any more.
        return


def _raisable(error: BaseException) -> BaseException:
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = BodyRaisedError(error)
    wrapped.__cause__ = error
    return wrapped
