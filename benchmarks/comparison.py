"""Takes the turns of all contenders, one after the other, round by round."""

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.entries import Entry, Place, Row
from benchmarks.figures import Figures, Request
from benchmarks.turn_process import TurnFailedError, take_turn

from stagewright_test_support.servers import PostgresServer, RedisServer
from stagewright_test_support.servers.redis_client import ask_redis

__all__ = ["Allowance", "Places", "Result", "RowResult", "compare", "ratios_between"]

_REDIS_DATABASE = 1
_ENOUGH = 20
_OWN = "Stagewright"


@dataclass(slots=True)
class Result:
    """What the rounds gave for one entry.

    Attributes:
        entry: The entry.
        turns: Its figures, by the number of the round.
        failure: Why a turn gave none; it has no more after that.
        loads: What the machine's load was when its turns began.
        left_out: How many turns it didn't have because the time was over.
    """

    entry: Entry
    turns: dict[int, Figures] = field(default_factory=dict)
    failure: str | None = None
    loads: list[float] = field(default_factory=list)
    left_out: int = 0

    @property
    def values(self) -> list[float]:
        return [one.value for one in self.turns.values()]

    @property
    def p99(self) -> float | None:
        """Of the samples of all rounds; None of fewer than twenty."""
        samples = [sample for one in self.turns.values() for sample in one.samples]
        return quantiles(samples, n=100, method="inclusive")[98] if len(samples) >= _ENOUGH else None

    @property
    def cpu_ms(self) -> float | None:
        """The median round's processor time for each of what was done."""
        found = [one.cpu_ms for one in self.turns.values() if one.cpu_ms is not None]
        return median(found) if found else None


@dataclass(frozen=True, slots=True)
class RowResult:
    """A row, and what was measured of each of its entries."""

    row: Row
    results: Sequence[Result]

    def result_of(self, name: str) -> Result | None:
        return next((one for one in self.results if one.entry.name == name), None)

    def reference_of(self, result: Result) -> Result:
        """What it is held against: the first one that works on the same, or the first one of all."""
        same = (one for one in self.results if one.entry.place == result.entry.place)
        first = next(same)
        return first if first.entry.name.startswith(_OWN) else self.results[0]


def ratios_between(own: Result, other: Result, *, is_less_better: bool = False) -> list[float]:
    """Round by round, how many times as good one was as the other."""
    rounds = sorted(own.turns.keys() & other.turns.keys())
    pairs = [(own.turns[one].value, other.turns[one].value) for one in rounds]
    return [theirs / ours if is_less_better else ours / theirs for ours, theirs in pairs]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a turn is given.

    Attributes:
        slots: How many bodies run at a time.
        limit: After how many seconds it is ended.
        seconds: What its work may take: it does less where less fits into them. None: it does all of its work.
    """

    slots: int
    limit: float
    seconds: float | None = None


class Places:
    """Where contenders work: a server for each kind, and in it something empty for every turn.

    Args:
        postgres: A durable PostgreSQL.
        redis: A Valkey or Redis. Without a server, those who need it have no turn.
        folder: For files and logs.
    """

    def __init__(self, postgres: PostgresServer | None, redis: RedisServer | None, folder: Path) -> None:
        self._postgres = postgres
        self._redis = redis
        self._folder = folder
        self._number = 0

    @property
    def log(self) -> Path:
        return self._folder / "turn.log"

    @contextmanager
    def empty(self, entry: Entry, allowance: Allowance) -> Iterator[Request]:
        """Something empty for one turn, with nothing left to write of what came before."""
        self._number += 1
        name = f"turn_{self._number}"
        folder = self._folder / name
        folder.mkdir()
        url = self._empty(entry.place, name, folder)
        try:
            yield Request(
                url, str(folder), entry.size, allowance.slots, entry.options, seconds=allowance.seconds
            )
        finally:
            if entry.place == "postgresql" and self._postgres is not None:
                self._postgres.drop_database(name)

    def _empty(self, place: Place, name: str, folder: Path) -> str:
        match place:
            case "postgresql":
                return self._empty_database(name)
            case "sqlite":
                return f"sqlite:///{folder / 'bench.db'}"
            case "redis":
                return self._empty_redis()
            case "none":
                return ""

    def _empty_database(self, name: str) -> str:
        if self._postgres is None:
            raise TurnFailedError("there is no PostgreSQL here")
        url = self._postgres.create_database(name)
        asyncio.run(_execute(url, "CHECKPOINT"))
        return url

    def _empty_redis(self) -> str:
        if self._redis is None:
            raise TurnFailedError("there is no Valkey here")
        ask_redis(self._redis.port, "FLUSHALL")
        return self._redis.url(_REDIS_DATABASE)


def compare(
    rows: Sequence[Row],
    places: Places,
    allowance: Allowance,
    *,
    rounds: int,
    tell: Callable[[str], None],
    within: float = math.inf,
) -> list[RowResult]:
    """Give every entry of every row its turn, in each round.

    Args:
        rows: What to compare.
        places: Where.
        allowance: What each turn is given.
        rounds: How often.
        tell: Is told of each turn, with what it took from its process's start to its end.
        within: When so many seconds are over, no turn begins but those of the first round.
    """
    ends = time.monotonic() + within
    compared = [RowResult(row, [Result(entry) for entry in row.entries]) for row in rows]
    for number in range(1, rounds + 1):
        for one in compared:
            is_enough = one.row.most_rounds is not None and number > one.row.most_rounds
            for result in () if is_enough else one.results:
                if result.failure is not None:
                    continue
                if number > 1 and time.monotonic() >= ends:
                    result.left_out += 1
                else:
                    took = _take(result, number, places, allowance)
                    told = result.failure or f"{result.values[-1]:,.1f} {one.row.unit}"
                    tell(f"round {number}: {one.row.key}: {result.entry.name}: {told} ({took:.1f} s)")
    return compared


def _take(result: Result, number: int, places: Places, allowance: Allowance) -> float:
    result.loads.append(os.getloadavg()[0])
    began = time.monotonic()
    try:
        with places.empty(result.entry, allowance) as request:
            result.turns[number] = take_turn(
                result.entry.call, request, log=places.log, limit=allowance.limit
            )
    except TurnFailedError as failed:
        result.failure = str(failed)
    return time.monotonic() - began


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
