"""Whether the simulation bites: the engine is broken on purpose, and a promise has to break with it."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stagewright_simulation import mutants
from stagewright_simulation.patches import Patch, apply_patches

__all__ = ["Caught", "all_mutants", "mutant_table"]


@dataclass(frozen=True, slots=True)
class Caught:
    """Which seed noticed a mutant first, and by which promises; None for no seed."""

    mutant: str
    seed: int | None
    promises: tuple[str, ...]

    def __str__(self) -> str:
        found = "not caught" if self.seed is None else f"{self.seed:>5}  {', '.join(self.promises)}"
        return f"{self.mutant:<50} {found}"


def all_mutants() -> Mapping[str, Sequence[Patch]]:
    """All mutants by name, out of the modules of `mutants`."""
    found: dict[str, Sequence[Patch]] = {}
    for module in pkgutil.iter_modules(mutants.__path__):
        found |= importlib.import_module(f"{mutants.__name__}.{module.name}").MUTANTS
    return found


def mutant_table(
    names: Sequence[str] = (), *, most: int = 2000, first: int = 0, processes: int = 1
) -> Iterator[Caught]:
    """Look which seed notices each mutant, each in a process of its own.

    Args:
        names: Which; all unless given.
        most: How many seeds are tried.
        first: The first seed.
        processes: Over how many processes the mutants are spread.
    """
    waiting = list(names) or list(all_mutants())
    running: list[tuple[str, subprocess.Popen[str]]] = []
    while waiting or running:
        while waiting and len(running) < processes:
            name = waiting.pop(0)
            running.append((name, _begin(name, most=most, first=first)))
        name, process = running.pop(0)
        out, _ = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"the mutant {name!r} could not be tried")
        seed, promises = json.loads(out.splitlines()[-1])
        yield Caught(name, seed, tuple(promises))


def _begin(name: str, *, most: int, first: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "stagewright_simulation.mutation", name, str(most), str(first)]
    here = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": here}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _hunt(name: str, most: int, first: int) -> None:
    """In a process of its own: break the engine, and run seeds until one notices."""
    apply_patches(all_mutants()[name])
    fleet = importlib.import_module("stagewright_simulation.fleet")  # only now may the engine be imported
    tally = fleet.run_seeds(range(first, first + most), most_failures=1)
    found = next(iter(tally.failures.items()), (None, ()))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    _hunt(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
