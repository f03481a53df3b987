"""Some scenarios out of their numbers; `nox -s simulate` runs many more."""

from collections.abc import Callable, Iterable

import pytest

from stagewright_simulation.generate import generate
from stagewright_simulation.shrink import shrink
from stagewright_simulation.simulate import run_scenario
from stagewright_simulation.trace import report

Simulate = Callable[[Iterable[int]], None]


@pytest.fixture
def simulate() -> Simulate:
    """`simulate(seeds)`: run them, and tell the story of the first that breaks a promise."""

    def run(seeds: Iterable[int]) -> None:
        for seed in seeds:
            outcome = run_scenario(generate(seed))
            if outcome.violations:
                pytest.fail(report(outcome, smaller=shrink(outcome, most=40)), pytrace=False)

    return run


@pytest.mark.guarantee("kernel.promises-hold-whatever-happens")
@pytest.mark.parametrize("first", [0, 100, 200, 300, 400, 500])
def test_promises_hold_whatever_happens(simulate: Simulate, first: int) -> None:
    simulate(range(first, first + 5))
