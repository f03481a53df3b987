"""A stage is given the same value, in type too, whether or not the process that made it is still there."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stagewright_persistence_sqlalchemy import create_engine, schema
from stagewright_test_support.backend_choice import stores

WORKER = Path(__file__).with_name("values_worker.py")
REFUSED = {"no-type-a-tuple", "no-type-integer-keys", "no-type-decimal"}


@pytest_asyncio.fixture(params=stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}))
async def url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """A database with the schema and nothing in it."""
    url = new_database(request.param)
    engine = create_engine(url)
    await schema.upgrade(engine)
    await engine.dispose()
    return url


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(WORKER), *arguments, stdout=asyncio.subprocess.PIPE
    )


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().strip()


async def answers_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(await line_of(process))
    assert await process.wait() == 0
    return answers


def check(answers: dict[str, Any]) -> None:
    refused = REFUSED | {f"{name}-by-steps" for name in REFUSED}
    wrong = {name: one for name, one in answers.items() if name not in refused and one["output"] != "same"}
    assert not wrong
    for name in REFUSED:
        assert answers[name]["error"] == "InvalidOutputError"
        assert answers[f"{name}-by-steps"]["error"] == "StepResultNotSerializableError"
    # Nothing was made twice: what the second stage was given came out of the database.
    assert {one["attempts of give"] for one in answers.values()} == {1}


async def test_a_value_is_the_same_in_the_process_that_made_it(url: str) -> None:
    process = await start(url, "nowhere")
    await line_of(process)
    check(await answers_of(process))


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    ["asyncpg", *(pytest.param(way, marks=pytest.mark.wide) for way in ("sqlite", "psycopg", "mariadb"))],
    indirect=True,
)
@pytest.mark.parametrize("place", ["between", "inside", "steps"])
@pytest.mark.guarantee("values.same-after-a-crash")
async def test_a_value_is_the_same_after_its_process_was_killed(url: str, place: str) -> None:
    victim = await start(url, place)
    runs = json.loads(await line_of(victim))
    assert await line_of(victim) == place
    victim.kill()
    assert await victim.wait() < 0
    check(await answers_of(await start(url, "nowhere", *runs)))
