"""The benchmark: three-stage runs over the floor, PostgreSQL and SQLite, interleaved, then what one run sends."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.contender import STAGES, Contender
from benchmarks.machine import RUN_DISTRIBUTIONS, database_facts, machine_facts
from benchmarks.postgres_floor import open_floor
from benchmarks.rounds import Entry, Result, run_rounds
from benchmarks.sent_statements import SentStatements, listening
from benchmarks.stagewright_runs import open_stagewright

from stagewright_test_support.servers import PostgresServer

__all__ = ["FLOOR", "POSTGRESQL", "SQLITE", "Report", "Settings", "measure"]

FLOOR, POSTGRESQL, SQLITE = "floor: asyncpg alone", "Stagewright on PostgreSQL", "Stagewright on SQLite"
_BATCHED = ", in batches"


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is measured.

    Attributes:
        runs: Runs a round on PostgreSQL.
        sqlite_runs: Runs a round on SQLite.
        rounds: How often each entry is measured.
        slots: How many jobs are executed at a time.
    """

    runs: int = 600
    sqlite_runs: int = 150
    rounds: int = 5
    slots: int = 16


@dataclass(frozen=True, slots=True)
class Report:
    """All figures of one run of the benchmark.

    Attributes:
        results: What the rounds gave, entry by entry.
        costs: What one run sends, by entry.
        facts: The machine and the versions.
        settings: How much was measured.
    """

    results: Sequence[Result]
    costs: Mapping[str, SentStatements]
    facts: Mapping[str, str]
    settings: Mapping[str, int]


async def measure(
    server: PostgresServer, folder: Path, settings: Settings, tell: Callable[[str], None]
) -> Report:
    """Measure everything.

    Args:
        server: A durable PostgreSQL; databases are made in it.
        folder: Where SQLite's files go.
        settings: How much.
        tell: Is told of each measurement as soon as there is one.
    """
    urls = {FLOOR: server.create_database("floor"), POSTGRESQL: server.create_database("engine")}
    urls[SQLITE] = f"sqlite:///{folder / 'engine.db'}"
    async with AsyncExitStack() as opened:
        # A kernel makes the floor's tables too: it is the same schema by construction.
        await opened.enter_async_context(open_stagewright(urls[FLOOR]))
        contenders: dict[str, Contender] = {
            FLOOR: await opened.enter_async_context(open_floor(urls[FLOOR], connections=settings.slots)),
            POSTGRESQL: await opened.enter_async_context(open_stagewright(urls[POSTGRESQL])),
            SQLITE: await opened.enter_async_context(open_stagewright(urls[SQLITE])),
        }
        results = await run_rounds(
            _entries(contenders, settings), rounds=settings.rounds, slots=settings.slots, tell=tell
        )
    costs = await _costs(urls)
    return Report(
        results=results,
        costs={result.entry.name: costs[result.entry.name.removesuffix(_BATCHED)] for result in results},
        facts=machine_facts(database_facts(postgres=await _version_of(urls[FLOOR])), RUN_DISTRIBUTIONS),
        settings=asdict(settings),
    )


def _entries(contenders: Mapping[str, Contender], settings: Settings) -> list[Entry]:
    entries = []
    for batched in (False, True):
        suffix = _BATCHED if batched else ""
        for name, contender in contenders.items():
            entries.append(
                Entry(
                    name=name + suffix,
                    contender=contender,
                    batched=batched,
                    runs=settings.sqlite_runs if name == SQLITE else settings.runs,
                    floor=FLOOR + suffix if name == POSTGRESQL else None,
                )
            )
    return entries


async def _costs(urls: Mapping[str, str]) -> dict[str, SentStatements]:
    """What the second run sends; the first one warms up what is kept."""
    costs = {name: SentStatements() for name in urls}
    async with open_floor(urls[FLOOR], connections=1, note=costs[FLOOR].note) as floor:
        await _one_after_the_other(floor, costs[FLOOR])
    for name in (POSTGRESQL, SQLITE):
        with listening(costs[name]):
            async with open_stagewright(urls[name]) as engine:
                await _one_after_the_other(engine, costs[name])
    return costs


async def _one_after_the_other(contender: Contender, sent: SentStatements) -> None:
    await contender.tables.clear()
    for _ in range(2):
        # asyncpg tells of a statement a moment after its answer.
        await asyncio.sleep(0.01)
        sent.forget()
        await contender.create()
        await contender.claim_runs(1)
        for _ in STAGES:
            (job,) = await contender.claim_jobs(1)
            await contender.execute(job)


async def _version_of(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()
