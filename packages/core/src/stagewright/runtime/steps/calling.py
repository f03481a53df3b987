"""Calling an author's function for a step, on the loop or in a thread, and what comes of it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from stagewright.errors import StageAbortedError
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.body_threads import BodyRaisedError, BodyThread, BodyThreads
from stagewright.runtime.fork_guard import ends_in_this_process
from stagewright.runtime.steps.control_flow import is_step_control_flow

__all__ = ["CutOff", "Raised", "Result", "Returned", "called", "called_here"]


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned this."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised this."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class CutOff:
    """The function was ended before it was done; `goes_on` if it could not be, being in a thread."""

    error: BaseException
    goes_on: bool = False


Result: TypeAlias = Returned | Raised | CutOff


async def called(
    function: Callable[[LoopPortal | None], object],
    *,
    threads: BodyThreads | None,
    name: str,
    is_cancelled: Callable[[], bool],
) -> Result:
    """Call a function from the event loop.

    Args:
        function: What is called, with the portal that a function in a thread uses.
        threads: Where it gets a thread of its own; None calls it on the loop.
        name: The thread's name.
        is_cancelled: Whether whoever called the step has been cancelled.
    """
    thread: BodyThread[object] | None = None
    try:
        if threads is not None:
            portal = LoopPortal(asyncio.get_running_loop())
            thread = threads.start(lambda: function(portal), name=name)
            value = await thread.result()
            return Returned(await _settled(value))
        with ends_in_this_process(f"the function of {name}"):
            return Returned(await _settled(function(None)))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError as error:
        if _is_being_cancelled() or is_cancelled():
            return CutOff(error, goes_on=thread is not None and not thread.is_finished)
        return Raised(error)
    except BodyRaisedError as raised:
        # Ctrl-C never reaches a thread, and raised on the loop it would end everything that runs there.
        ends_the_loop = isinstance(raised.error, KeyboardInterrupt | GeneratorExit)
        return _raised(raised if ends_the_loop else raised.error)
    except BaseException as error:
        return _raised(error)


async def _settled(value: object) -> object:
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value


def called_here(function: Callable[[LoopPortal | None], object], portal: LoopPortal) -> Result:
    """Call a function in the thread of a plain body, which this is called in."""
    try:
        with ends_in_this_process("the function of a step"):
            value = function(portal)
        if inspect.isawaitable(value):
            value = portal.call(_awaited(cast("Awaitable[object]", value)))
        return Returned(value)
    except BaseException as error:  # whatever it is, the step ends with it
        return _raised(error)


async def _awaited(value: Awaitable[object]) -> object:
    return await value


def _raised(error: BaseException) -> Raised | CutOff:
    if isinstance(error, StageAbortedError) or is_step_control_flow(error):
        return CutOff(error)
    return Raised(error)


def _is_being_cancelled() -> bool:
    """Whether this task was cancelled from outside; it goes on with the ledger as if it had not been."""
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return False
    while task.uncancel():
        pass
    return True
