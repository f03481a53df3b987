"""A turn does as much as it is asked for, or as much as fits into its seconds."""

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from benchmarks.figures import Figures, Pace, Request, family_cpu_seconds, repeat

BUSY = """
import sys, time
while time.process_time() < 0.3:
    pass
print("busy for a while", flush=True)
sys.stdin.read()
"""


def asked(size: int, seconds: float | None) -> Request:
    return Request("", "", size, 2, seconds=seconds)


def sizes_at(pace: Pace, *a_second: float) -> list[int]:
    """What is done, one after the other, by somebody who does so many a second each time."""
    done = []
    for one in a_second:
        done.append(pace.size)
        pace.note(Figures(pace.size, pace.size / one))
    return done


def test_without_seconds_all_is_done_after_a_warm_up() -> None:
    pace = Pace(asked(1_000, None), 20)
    assert sizes_at(pace, 2, 1) == [20, 1_000]
    assert pace.is_found
    assert pace.figures == Figures(1_000, 1_000)


def test_with_seconds_as_much_is_done_as_fits() -> None:
    pace = Pace(asked(1_000, 2), 20)
    assert sizes_at(pace, 100, 100) == [20, 200]
    assert pace.figures.done == 200


def test_who_was_slow_only_at_first_does_more() -> None:
    pace = Pace(asked(1_000, 2), 20)
    assert sizes_at(pace, 12, 200) == [20, 24]
    assert not pace.is_found
    assert sizes_at(pace, 200) == [400]
    assert pace.figures.done == 400


def test_who_is_slow_does_no_less_than_in_its_warm_up() -> None:
    pace = Pace(asked(1_000, 1), 20)
    assert sizes_at(pace, 2, 2) == [20, 20]
    assert pace.is_found


def test_who_is_quick_does_no_more_than_all() -> None:
    pace = Pace(asked(50, 60), 20)
    assert sizes_at(pace, 1_000, 1_000) == [20, 50]
    assert pace.is_found


@pytest.mark.parametrize(
    ("count", "seconds", "given"), [(30, None, 30), (30, 0, 10), (4, 0, 4), (30, 600, 30)]
)
def test_samples_are_taken_until_the_seconds_are_over(count: int, seconds: float | None, given: int) -> None:
    assert list(repeat(count, seconds)) == list(range(given))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux tells of a child that runs")
def test_a_server_that_is_a_child_can_be_told_apart() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=PIPE, stdout=PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"busy for a while\n"
        assert family_cpu_seconds() - family_cpu_seconds(apart=child.pid) >= 0.2
        child.kill()


def test_a_request_travels_with_its_seconds() -> None:
    request = asked(3, 1.5)
    assert Request.from_text(request.as_text()) == request
