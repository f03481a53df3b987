"""Each turn of Stagewright and of the floor does what it is asked, whatever that takes."""

from pathlib import Path

import pytest
from benchmarks import import_turns, own_turns
from benchmarks.figures import Request


def asked(url: str, size: int, **options: object) -> Request:
    return Request(url, "", size, 2, options)


@pytest.mark.parametrize("turn", ["backlog", "hosted_three_stages", "steps", "three_stages"])
def test_a_turn_does_so_many(tmp_path: Path, turn: str) -> None:
    url = f"sqlite:///{tmp_path / 'turn.db'}"
    figures = getattr(own_turns, turn)(asked(url, 3))
    assert figures.done == 3
    assert figures.value > 0
    assert (figures.more.keys() == {"replay_ms"}) is (turn == "steps")


@pytest.mark.parametrize("batched", [False, True])
def test_the_floor_takes_a_turn(postgres_url: str, batched: bool) -> None:
    figures = own_turns.floor(asked(postgres_url, 3, batched=batched))
    assert figures.done == 3
    assert figures.cpu_ms is not None


def test_an_import_is_timed_in_new_processes() -> None:
    figures = import_turns.import_time(asked("", 2, of="json"))
    assert len(figures.samples) == 2
    assert min(figures.samples) > 0
