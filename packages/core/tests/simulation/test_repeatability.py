"""A number is all it takes: the same simulation again, in any process, whatever its hashes are."""

import subprocess
import sys
from pathlib import Path

import pytest

from stagewright_simulation.generate import generate
from stagewright_simulation.simulate import run_scenario

SCRIPT = """
from stagewright_simulation.generate import generate
from stagewright_simulation.simulate import run_scenario
for seed in (3, 7):
    outcome = run_scenario(generate(seed))
    print(seed, outcome.fingerprint, len(outcome.story), repr(outcome.seconds))
"""


def told_by_a_process(hash_seed: str) -> str:
    here = str(Path(__file__).parent)
    environment = {"PYTHONPATH": here, "PYTHONHASHSEED": hash_seed, "PATH": ""}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout


def test_a_seed_is_the_same_in_every_process() -> None:
    first, second = told_by_a_process("1"), told_by_a_process("4711")
    assert first == second
    assert len({line.split()[1] for line in first.splitlines()}) == 2


def test_a_seed_is_the_same_a_second_time() -> None:
    outcomes = [run_scenario(generate(5)) for _ in range(2)]
    assert outcomes[0].story == outcomes[1].story
    assert outcomes[0].fingerprint == outcomes[1].fingerprint
    assert outcomes[0].calls > 100


@pytest.mark.parametrize("seed", [1, 2])
def test_seeds_differ(seed: int) -> None:
    assert generate(seed) != generate(seed + 1)
    assert generate(seed) == generate(seed)
