"""What comes of code that others wrote, whatever it raises."""

import asyncio
from collections.abc import Awaitable

from stagewright.runtime.body_threads import BodyRaisedError

__all__ = ["what_came_of"]


async def what_came_of(body: Awaitable[object]) -> tuple[object, BaseException | None]:
    """Await a body or a delivery, and give what it returned, or None and what it raised.

    Only what ends this task itself passes: its cancellation from outside, and Ctrl-C.
    """
    try:
        return await body, None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The body cancelled itself, or let a cancellation of its own making out: that is its failure.
        return None, error
    except KeyboardInterrupt:
        raise
    except BodyRaisedError as error:
        return None, error.error
    except BaseException as error:
        return None, error
