"""An event loop that is blocked while it has a transaction open on SQLite doesn't keep the other writers out."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator

import pytest

from stagewright.errors import TransientError
from stagewright_conformance.samples import a_run
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyPersistence
from stagewright_persistence_sqlalchemy.stall_guard import StallGuard

pytestmark = pytest.mark.parametrize("way", ["sqlite"], indirect=True)


class OtherWriter:
    """Another process, as far as the database can tell: a connection of its own, in a thread of its own."""

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("sqlite:///")
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        connection.close()
        self.done.set()

    def join(self) -> None:
        self._thread.join()


@pytest.fixture
def other_writer(url: str) -> Iterator[list[OtherWriter]]:
    begun: list[OtherWriter] = []
    yield begun
    for one in begun:
        one.join()


def block_until(done: threading.Event) -> None:
    """Keep the event loop, as a body that computes does."""
    assert done.wait(30)


@pytest.mark.guarantee("sql.blocked-loops-hold-no-locks")
async def test_a_transaction_of_a_blocked_loop_ends_for_the_others(
    url: str, database: Database, other_writer: list[OtherWriter]
) -> None:
    persistence, run = SqlAlchemyPersistence(database), a_run()
    with pytest.raises(TransientError, match="the event loop was blocked while a transaction was open"):
        async with persistence.transaction() as transaction:
            await transaction.create_run(run)
            assert await transaction.get_run("nothing") is None
            other_writer.append(OtherWriter(url))
            block_until(other_writer[0].done)
    assert await persistence.get_run(run.id) is None
    async with persistence.transaction() as transaction:
        await transaction.create_run(run)
    assert await persistence.get_run(run.id) is not None


async def test_a_loop_that_is_blocked_before_a_commit_hears_that_nothing_was_kept(
    url: str, database: Database, other_writer: list[OtherWriter]
) -> None:
    async with database.sessions.writing() as session:
        with pytest.raises(TransientError):
            async with session.savepoint():
                other_writer.append(OtherWriter(url))
                block_until(other_writer[0].done)
        # Begun anew, it is an ordinary one.
        await session.restart()
        async with session.savepoint():
            pass


async def test_a_transaction_that_waits_for_something_else_stays_open(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()
    loop = asyncio.get_running_loop()
    is_blocked = StallGuard.is_blocked

    def note(guard: StallGuard, of: asyncio.AbstractEventLoop) -> bool:
        loop.call_soon_threadsafe(looked.set)
        return is_blocked(guard, of)

    monkeypatch.setattr(StallGuard, "is_blocked", note)
    persistence, run = SqlAlchemyPersistence(database), a_run()
    async with persistence.transaction() as transaction:
        await transaction.create_run(run)
        assert await transaction.get_run("nothing") is None
        for _ in range(8):
            looked.clear()
            await looked.wait()
    assert await persistence.get_run(run.id) is not None


async def test_the_thread_that_watches_ends_when_nothing_is_open(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagewright_persistence_sqlalchemy.stall_guard._IDLE_LOOKS", 1)

    def watchers() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "stagewright-stall-guard"]

    async with database.sessions.writing():
        assert watchers()
    give_up_at = time.monotonic() + 30
    while watchers() and time.monotonic() < give_up_at:
        await asyncio.sleep(0.02)
    assert not watchers()
    async with database.sessions.writing():
        assert watchers()
