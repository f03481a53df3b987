"""Who tells others with its commit, and who leaves it to be said together."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from stagewright.records import RunRecord
from stagewright_conformance.samples import a_run
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyPersistence
from stagewright_persistence_sqlalchemy import telling as telling_module
from stagewright_persistence_sqlalchemy.telling import Telling

MANY = 60


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Sent:
    def __init__(self) -> None:
        self.times = 0
        self.happened = asyncio.Event()

    async def __call__(self) -> None:
        self.times += 1
        self.happened.set()


def test_a_few_go_along_and_then_one_each_twentieth_of_a_second() -> None:
    clock, sent = Clock(), Sent()
    telling = Telling(sent, clock)
    assert [telling.goes_along() for _ in range(7)] == [True] * 5 + [False] * 2
    clock.now += 0.049
    assert not telling.goes_along()
    clock.now += 0.002
    assert [telling.goes_along() for _ in range(2)] == [True, False]
    clock.now += 3600
    assert [telling.goes_along() for _ in range(7)] == [True] * 5 + [False] * 2


async def test_what_is_left_is_said_together() -> None:
    sent = Sent()
    telling = Telling(sent)
    for _ in range(10):
        telling.later()
    await asyncio.wait_for(sent.happened.wait(), 20)
    assert sent.times == 1
    sent.happened.clear()
    telling.later()
    await asyncio.wait_for(sent.happened.wait(), 20)
    assert sent.times == 2


async def test_what_is_left_is_said_at_the_latest_when_it_is_closed() -> None:
    sent = Sent()
    telling = Telling(sent)
    telling.later()
    await telling.close()
    assert sent.times == 1
    await telling.close()
    assert sent.times == 1


async def test_a_database_that_takes_nothing_more_keeps_nobody_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telling_module, "_LAST_MOMENT", 0.01)

    async def hang() -> None:
        await asyncio.Event().wait()

    telling = Telling(hang)
    telling.later()
    await asyncio.wait_for(telling.close(), 20)


async def test_what_a_broken_database_says_keeps_nobody_from_closing() -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    telling = Telling(fail)
    telling.later()
    await telling.close()


@pytest.mark.guarantee("sql.many-are-told-of-together")
@pytest.mark.parametrize("way", ["asyncpg", "mariadb"], indirect=True)
async def test_of_much_that_is_made_fast_others_are_told_together_and_to_the_end(
    url: str,
    database: Database,
    open_database: Callable[..., Database],
    eventually: Callable[..., Awaitable[None]],
) -> None:
    here, there = SqlAlchemyPersistence(database), SqlAlchemyPersistence(open_database(url))
    database.listen()
    await eventually(lambda: database.listener.is_healthy)
    tellings: list[str] = []

    @event.listens_for(there.database.engine.sync_engine, "connect")
    def connect(connection: Any, record: object) -> None:  # Any: SQLAlchemy's adapted connection
        if hasattr(connection.driver_connection, "add_query_logger"):
            connection.driver_connection.add_query_logger(lambda query: note(query.query))

    @event.listens_for(there.database.engine.sync_engine, "before_cursor_execute")
    def execute(connection: Any, cursor: object, statement: str, *rest: object) -> None:
        note(statement)

    def note(statement: str) -> None:
        if "pg_notify" in statement or ("work_signals" in statement and "SELECT" not in statement):
            tellings.append(statement)

    seen: set[str] = set()

    async def look() -> bool:
        for run in [run for run in runs if run.id not in seen]:
            if await here.get_run(run.id) is not None:
                seen.add(run.id)
        return len(seen) == MANY

    runs = [a_run() for _ in range(MANY)]

    async def create(run: RunRecord) -> None:
        async with there.transaction() as tx:
            await tx.create_run(run)
            await tx.notify("runs")

    creating = asyncio.gather(*map(create, runs))
    async with asyncio.timeout(20):
        while not await look():
            assert await here.wait_for_work(timedelta(seconds=20)), (
                "told of each, at the latest with the last"
            )
    await creating
    await eventually(lambda: 1 <= len(tellings) < MANY)
