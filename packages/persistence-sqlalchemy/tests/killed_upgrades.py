"""A build that is started again and again, each time to be killed at the next moment of its upgrade.

    python killed_upgrades.py URL FOLDER HEAD

FOLDER has the migrations that the build knows. Each start kills itself by SIGKILL right after its first, second, third
statement and so on; once the database has a new version, the count begins anew. It prints one JSON object for each
start: after how many `statements` it was killed, or null, and what was found then: `version`, `oldest_build`, and what
this package's own build says (`own_build`: "works", or the name of an error).
"""

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from schema_builds import Build
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright.errors import StagewrightError
from stagewright_persistence_sqlalchemy import create_engine, schema

_PROCESSES: Final = multiprocessing.get_context("fork")


def upgrade(url: str, build: Build, kill_after: int) -> None:
    """Upgrade, and die after so many statements."""
    engine = create_engine(url)
    sent = 0

    @event.listens_for(engine.sync_engine, "after_cursor_execute")
    def die(*_: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> None:
        await schema.upgrade(engine)
        await engine.dispose()

    with build.acting():
        asyncio.run(run())


async def found(engine: AsyncEngine) -> dict[str, object]:
    """What is there, as this package's own build sees it."""
    own_build = "works"
    try:
        await schema.check(engine)
    except StagewrightError as error:
        own_build = type(error).__name__
    version, oldest_build = await schema.current(engine), await schema.oldest_build(engine)
    await engine.dispose()
    return {"version": version, "oldest_build": oldest_build, "own_build": own_build}


def main(url: str, build: Build) -> None:
    count, before = 1, None
    while True:
        process = _PROCESSES.Process(target=upgrade, args=(url, build, count))
        process.start()
        process.join()
        if process.exitcode not in (0, -signal.SIGKILL):
            sys.exit(f"a start failed with {process.exitcode}")
        is_done = process.exitcode == 0
        seen = asyncio.run(found(create_engine(url)))
        sys.stdout.write(json.dumps({"statements": None if is_done else count, **seen}) + "\n")
        if is_done:
            return
        count = count + 1 if seen["version"] == before else 1
        before = seen["version"]


if __name__ == "__main__":
    logging.disable()  # each look at a newer database would say that it is one
    main(sys.argv[1], Build(Path(sys.argv[2]), sys.argv[3]))
