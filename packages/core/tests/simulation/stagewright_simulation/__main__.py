"""`python -m stagewright_simulation`: what `nox -s simulate` calls."""

import argparse
import sys
from collections.abc import Sequence

from stagewright_simulation.fleet import run_seeds
from stagewright_simulation.generate import generate
from stagewright_simulation.mutation import mutant_table
from stagewright_simulation.shrink import shrink
from stagewright_simulation.simulate import run_scenario
from stagewright_simulation.trace import report

_TOLD = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds, or mutants; 1 if a promise is broken, or a mutant isn't caught."""
    given = _parser().parse_args(arguments)
    if given.mutants is not None:
        return _mutants(given.mutants, most=given.seeds or 2000, first=given.first, processes=given.processes)
    seeds = given.seeds or 1000
    if seeds == 1:
        outcome = run_scenario(generate(given.first))
        smaller = shrink(outcome) if outcome.violations else None
        _say(report(outcome, smaller=smaller))
        return int(bool(outcome.violations))
    tally = run_seeds(range(given.first, given.first + seeds), processes=given.processes)
    _say(f"{tally.seeds} seeds, {tally.calls:,} calls of stores, {tally.seconds:.0f} s")
    for seed, broken in sorted(tally.failures.items()):
        _say(f"seed {seed} breaks {', '.join(broken)}")
    for seed in sorted(tally.failures)[:_TOLD]:
        outcome = run_scenario(generate(seed))
        _say(report(outcome, smaller=shrink(outcome)))
    return int(bool(tally.failures))


def _mutants(names: Sequence[str], *, most: int, first: int, processes: int) -> int:
    is_caught = True
    for row in mutant_table(names, most=most, first=first, processes=processes):
        _say(str(row))
        is_caught = is_caught and row.seed is not None
    return int(not is_caught)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simulate", description="Many processes, faults at every call, one number."
    )
    parser.add_argument("seeds", nargs="?", type=int, help="how many; 1000 unless given; one tells its story")
    parser.add_argument("first", nargs="?", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1, help="over how many processes of this machine")
    parser.add_argument(
        "--mutants", nargs="*", help="break the engine in each of these ways, or in all, and look who notices"
    )
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
