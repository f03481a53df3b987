"""Rounds: every contender once in each, so that a slow moment of the machine hits all of them alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.contender import Contender
from benchmarks.draining import Measurement, drain

__all__ = ["Entry", "Result", "run_rounds"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender in one way of claiming.

    Attributes:
        name: What the report calls it.
        contender: Who is measured.
        batched: Whether jobs are claimed for all free slots at once.
        runs: How many runs each round takes.
        floor: The name of the entry that it is held against.
    """

    name: str
    contender: Contender
    batched: bool
    runs: int
    floor: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What the rounds gave for one entry.

    Attributes:
        entry: The entry.
        rounds: Its measurements, in order.
        ratios: Its runs per second over those of its floor, round by round; empty without a floor.
    """

    entry: Entry
    rounds: tuple[Measurement, ...]
    ratios: tuple[float, ...]

    @property
    def runs_per_second(self) -> float:
        return median(one.runs_per_second for one in self.rounds)

    @property
    def cpu_ms_per_stage(self) -> float:
        return median(one.cpu_ms_per_stage for one in self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """The slowest and the fastest round, in runs per second."""
        speeds = [one.runs_per_second for one in self.rounds]
        return min(speeds), max(speeds)

    @property
    def ratio(self) -> float | None:
        return median(self.ratios) if self.ratios else None


async def run_rounds(
    entries: Sequence[Entry], *, rounds: int, slots: int, tell: Callable[[str], None]
) -> list[Result]:
    """Measure all entries in turn, as often as there are rounds, after a short round that warms up what is kept."""
    for entry in entries:
        await drain(entry.contender, runs=min(entry.runs, 2 * slots), slots=slots, batched=entry.batched)
    measured: dict[str, list[Measurement]] = {entry.name: [] for entry in entries}
    for number in range(1, rounds + 1):
        for entry in entries:
            taken = await drain(entry.contender, runs=entry.runs, slots=slots, batched=entry.batched)
            measured[entry.name].append(taken)
            tell(f"round {number}: {entry.name}: {taken.runs_per_second:.1f} runs/s")
    return [Result(entry, tuple(measured[entry.name]), _ratios(entry, measured)) for entry in entries]


def _ratios(entry: Entry, measured: dict[str, list[Measurement]]) -> tuple[float, ...]:
    if entry.floor is None:
        return ()
    pairs = zip(measured[entry.name], measured[entry.floor], strict=True)
    return tuple(own.runs_per_second / floor.runs_per_second for own, floor in pairs)
