"""Waiting until a run has ended, whoever works on it."""

import asyncio
from datetime import timedelta
from typing import Final

from stagewright.duration import Duration, parse_duration
from stagewright.errors import RunNotFoundError
from stagewright.kernel import Kernel
from stagewright.ports import WorkNotifier
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES

__all__ = ["wait_for_run"]

_FIRST_PAUSE: Final = timedelta(milliseconds=50)
_LONGEST_PAUSE: Final = timedelta(seconds=1)


async def wait_for_run(kernel: Kernel, run_id: str, *, timeout: Duration | None = None) -> RunRecord:
    """Wait until a run is COMPLETED, FAILED or CANCELLED; it is for hosts to bring it there.

    Args:
        kernel: The kernel.
        run_id: The run.
        timeout: How long to wait at most.

    Raises:
        RunNotFoundError: If there is no such run, or not any more.
        TimeoutError: If the run didn't end in time.
        InvalidDurationError: If `timeout` is no duration.
    """
    limit = None if timeout is None else parse_duration(timeout, field="timeout").total_seconds()
    clock = asyncio.timeout(limit)
    try:
        async with clock:
            return await _ended(kernel, run_id)
    except TimeoutError as error:
        if limit is None or not clock.expired():
            raise
        raise TimeoutError(f"run {run_id!r} did not end within {limit:g} s") from error


async def _ended(kernel: Kernel, run_id: str) -> RunRecord:
    pause = _FIRST_PAUSE
    # The first look comes alone: it may be the answer, and a kernel that can't be used here says so.
    run = await _look(kernel, run_id)
    while run.status not in TERMINAL_RUN_STATUSES:
        # Waiting begins before the next look, so that what happens in between isn't missed.
        waiting = asyncio.create_task(_next_change(kernel, pause))
        try:
            await asyncio.sleep(0)
            run = await _look(kernel, run_id)
            if run.status not in TERMINAL_RUN_STATUSES:
                await waiting
        finally:
            waiting.cancel()
        pause = min(pause * 2, _LONGEST_PAUSE)
    return run


async def _look(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    if run is None:
        raise RunNotFoundError(run_id)
    return run


async def _next_change(kernel: Kernel, pause: timedelta) -> None:
    persistence = kernel.ports.persistence
    if isinstance(persistence, WorkNotifier):
        await persistence.wait_for_work(pause)
    else:
        await asyncio.sleep(pause.total_seconds())
