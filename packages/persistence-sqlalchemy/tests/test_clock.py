from datetime import UTC, datetime, timedelta

import pytest

from stagewright.system import SystemClock
from stagewright_persistence_sqlalchemy import create_engine
from stagewright_persistence_sqlalchemy.clock import OffsetClock, clock_of


class WrongClock:
    """The machine's clock, ten minutes late."""

    def now(self) -> datetime:
        return datetime.now(UTC) - timedelta(minutes=10)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "Pacific/Kiritimati"])
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
