"""Many seeds, over several processes of this machine."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stagewright_simulation.generate import generate
from stagewright_simulation.simulate import run_scenario

__all__ = ["Tally", "run_seeds"]


@dataclass(slots=True)
class Tally:
    """What came of many seeds.

    Attributes:
        seeds: How many were run.
        calls: How many calls of stores that were.
        failures: The seeds that broke promises, and which.
        seconds: How long it took.
    """

    seeds: int = 0
    calls: int = 0
    failures: dict[int, tuple[str, ...]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def promises(self) -> Counter[str]:
        """How many seeds broke which promise."""
        return Counter(name for names in self.failures.values() for name in names)


def run_seeds(seeds: Iterable[int], *, processes: int = 1, most_failures: int | None = None) -> Tally:
    """Run seeds until all are done, or so many have failed."""
    tally, began = Tally(), time.monotonic()
    for seed, calls, broken in _results(seeds, processes):
        tally.seeds += 1
        tally.calls += calls
        if broken:
            tally.failures[seed] = broken
            if most_failures is not None and len(tally.failures) >= most_failures:
                break
    tally.seconds = time.monotonic() - began
    return tally


def _results(seeds: Iterable[int], processes: int) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    if processes <= 1:
        yield from map(_run, seeds)
        return
    # A fork would share whatever this process has open.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_run, seeds, chunksize=4)


def _run(seed: int) -> tuple[int, int, tuple[str, ...]]:
    outcome = run_scenario(generate(seed))
    return seed, outcome.calls, outcome.broken
