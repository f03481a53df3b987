from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from stagewright.records import NewJob
from stagewright.system import SystemClock
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport, create_engine
from stagewright_persistence_sqlalchemy.clock import OffsetClock, clock_of
from stagewright_test_support.backend_choice import stores


class WrongClock:
    """The machine's clock, ten minutes late."""

    def now(self) -> datetime:
        return datetime.now(UTC) - timedelta(minutes=10)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "Pacific/Kiritimati"])
@pytest.mark.guarantee("sql.clock-set-right")
async def test_on_a_server_a_wrong_clock_is_set_right(
    postgres_url: str, driver: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTZ", zone)
    engine = create_engine(postgres_url.replace("postgresql://", f"postgresql+{driver}://"))
    clock = await clock_of(engine, local=WrongClock())
    assert isinstance(clock, OffsetClock)
    assert abs(clock.offset - timedelta(minutes=10)) < timedelta(seconds=1)
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=1)
    assert clock.now().tzinfo is UTC
    await engine.dispose()


async def test_a_right_clock_is_hardly_moved(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    clock = await clock_of(engine)
    assert isinstance(clock, OffsetClock)
    assert abs(clock.offset) < timedelta(seconds=1)
    await engine.dispose()


@pytest.mark.guarantee("sql.clock-set-right")
async def test_a_clock_that_is_set_afterwards_changes_nothing(postgres_url: str) -> None:
    class Set:
        """A machine's clock, whose operator sets it."""

        by = timedelta(minutes=10)

        def now(self) -> datetime:
            return datetime.now(UTC) + self.by

    local, engine = Set(), create_engine(postgres_url)
    clock = await clock_of(engine, local=local)
    local.by = timedelta(0)
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=1)
    before = clock.now()
    local.by = timedelta(hours=-3)
    assert timedelta(0) <= clock.now() - before < timedelta(seconds=1)
    await engine.dispose()


async def test_on_sqlite_the_local_clock_is_the_databases(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    local = WrongClock()
    assert await clock_of(engine, local=local) is local
    assert isinstance(await clock_of(engine), SystemClock)
    await engine.dispose()


def test_an_offset_is_added() -> None:
    class Fixed:
        def now(self) -> datetime:
            return datetime(2026, 1, 1, tzinfo=UTC)

    assert OffsetClock(timedelta(seconds=-3), Fixed()).now() == datetime(2025, 12, 31, 23, 59, 57, tzinfo=UTC)


@pytest_asyncio.fixture
async def wrong(url: str, database: Database) -> AsyncIterator[SqlAlchemyJobTransport]:
    """The transport of a host whose clock is ten minutes late."""
    late = Database(create_engine(url), clock=WrongClock())
    yield SqlAlchemyJobTransport(late)
    await late.close()


@pytest.mark.parametrize("way", stores("asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True)
@pytest.mark.guarantee("sql.leases-by-the-databases-clock")
async def test_leases_of_hosts_with_different_clocks_are_judged_by_one(
    wrong: SqlAlchemyJobTransport, database: Database, eventually: Callable[..., Awaitable[None]]
) -> None:
    right, near = SqlAlchemyJobTransport(database), timedelta(seconds=20)
    jobs = [NewJob(id=name, run_id="r", workflow_id="w", stage_id=name) for name in ("of right", "of wrong")]
    await right.enqueue_parallel(jobs)
    (first,) = await right.dequeue(worker_id="right")
    (second,) = await wrong.dequeue(worker_id="wrong")
    assert abs(second.fence.started_at - datetime.now(UTC)) < near
    for transport in (right, wrong):
        assert (await transport.release_stale(near)).released == ()
        assert await transport.expire_runaway(near) == []
    assert await wrong.touch(second.job_id, second.fence)
    assert (await right.release_stale(near)).released == ()
    # A pause ends for both at once, whoever's clock began it.
    await wrong.fail(second.job_id, "no", retry=True, delay=timedelta(milliseconds=300), fence=second.fence)
    assert await right.dequeue(worker_id="right") == await wrong.dequeue(worker_id="wrong") == []
    await eventually(wrong.depth, within=5)
    assert await right.depth() == 1
    assert len((await wrong.release_stale(timedelta(0))).released) == 1
    assert [job.id for job in await right.get_jobs_by_run("r")] == [first.job_id, second.job_id]


@pytest.mark.parametrize("way", ["asyncpg", "psycopg", "mariadb"], indirect=True)
@pytest.mark.guarantee("sql.leases-by-the-databases-clock")
async def test_a_lease_that_begins_without_a_claim_is_judged_by_the_same_clock(
    wrong: SqlAlchemyJobTransport, database: Database
) -> None:
    right, near = SqlAlchemyJobTransport(database), timedelta(seconds=20)
    job = NewJob(id="job", run_id="r", workflow_id="w", stage_id="s")
    (taken,) = await wrong.enqueue_delivered([job], worker_id="wrong")
    (kept,) = await right.get_jobs_by_run("r")
    assert kept.locked_at is not None
    assert abs(kept.locked_at - datetime.now(UTC)) < near
    # The fence is what the host takes for the database's time, and is compared alone.
    assert taken.fence.started_at == kept.started_at
    for transport in (right, wrong):
        assert (await transport.release_stale(near)).released == ()
    assert await right.touch(taken.job_id, taken.fence)
    assert await right.complete(taken.job_id, taken.fence) == "acknowledged"
