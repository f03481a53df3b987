"""`stagewright worker` in processes of its own, which a test kills while they work."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from stagewright_test_support.servers.launch import last_lines, launch

__all__ = ["KILLED_SOON_FOUND", "WorkerCommands"]

KILLED_SOON_FOUND: Final = (
    "--stale-lease-threshold", "3s", "--job-heartbeat-interval", "1s",
    "--orchestration-interval", "1s", "--poll-interval", "500ms", "--concurrency", "4",
)  # fmt: skip
"""Options of workers whose jobs others take soon after they were killed."""


class WorkerCommands:
    """Workers on the workflows of one file, and what their bodies noted beside it."""

    def __init__(self, target: str, folder: Path) -> None:
        """Start none yet.

        Args:
            target: The file and the name in it, such as `path/to/flows.py:flow`.
            folder: Where bodies note what they do, in `effects.txt`, and workers have their logs.
        """
        self._target = target
        self._folder = folder
        self._effects = folder / "effects.txt"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker; the variable `EFFECTS` tells it where bodies note what they do."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STAGEWRIGHT_")}
        self._started.append(
            launch(
                [sys.executable, "-m", "stagewright.cli", "worker", self._target, *options],
                log=self._log(len(self._started)),
                account=None,
                farewell=signal.SIGKILL,
                environment={**inherited, "EFFECTS": str(self._effects)},
            )
        )
        return self._started[-1]

    async def kill_over_and_over(
        self,
        start: Callable[[], subprocess.Popen[bytes]],
        running: Sequence[subprocess.Popen[bytes]],
        chance: Random,
        *,
        times: int,
        begun_between: int,
        pause: float,
        and_then: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Kill one of the workers at a time, by chance, and start another in its place.

        Args:
            start: Starts the other.
            running: The workers at first.
            chance: Chooses the worker and the moment.
            times: How often.
            begun_between: So many bodies begin before the next kill, so that it is in the middle of work.
            pause: So many seconds at the most are waited beyond that.
            and_then: What else happens after each kill, by its number.
        """
        alive = [*running]
        for kills in range(1, times + 1):
            enough = begun_between * kills
            await self.until(partial(self._have_begun, enough), f"{enough} bodies begin", within=60)
            await asyncio.sleep(chance.uniform(0, pause))
            victim = chance.randrange(len(alive))
            alive[victim].kill()
            alive[victim].wait()
            alive[victim] = start()
            if and_then is not None:
                await and_then(kills)

    def noted(self, kind: str) -> Counter[str]:
        """How often bodies noted something of a kind, by what stands behind it, such as the run."""
        there = self._effects.exists()
        lines = self._effects.read_text(encoding="utf-8").splitlines() if there else []
        return Counter(line.split(" ")[1] for line in lines if line.startswith(f"{kind} "))

    def has_begun(self, run_id: str) -> bool:
        """Whether a body of a run noted that it begins."""
        return self.noted("begin")[run_id] > 0

    async def until(self, condition: Callable[[], Any], what: str, *, within: float = 20.0) -> None:
        """Wait until a function, or an async one, answers with truth; workers' last words tell why it doesn't."""
        try:
            async with asyncio.timeout(within):
                while True:
                    answer = condition()
                    if asyncio.iscoroutine(answer):
                        answer = await answer
                    if answer:
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            logs = [last_lines(self._log(number), 20) for number in range(len(self._started))]
            pytest.fail(f"not within {within:g} s: {what}\n\n" + "\n\n".join(logs), pytrace=False)

    def kill_all(self) -> None:
        """End all that still run, at this instant."""
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait()

    def _have_begun(self, count: int) -> bool:
        return self.noted("begin").total() >= count

    def _log(self, number: int) -> Path:
        return self._folder / f"worker-{number}.log"
