"""Faults are set at calls that processes do make; one that is set at another call would never come about."""

import pytest

from stagewright_simulation.generate import MOMENTS, generate
from stagewright_simulation.role import Role
from stagewright_simulation.simulate import run_scenario

SEEDS = 120
TELLING = (2, 22, 43, 42, 29, 28, 1)
"""Between them they come to all of it, as scenarios are generated now; what they miss is looked for in all seeds."""


def test_every_moment_of_a_fault_comes_about(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {kind: set(moments) for kind, moments in MOMENTS.items()}
    reach = Role.reach

    async def seen(role: Role, store: str, moment: str) -> None:
        missing.get(role.name.partition("-")[0], set()).discard(moment)
        await reach(role, store, moment)

    monkeypatch.setattr(Role, "reach", seen)
    for seed in (*TELLING, *range(SEEDS)):
        run_scenario(generate(seed))
        if not any(missing.values()):
            return
    pytest.fail(f"{SEEDS} seeds, and nobody comes to {missing}")
