"""What one turn of a contender gave, as it travels from its process to the one that compares."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

__all__ = ["Figures", "Pace", "Request", "Stopwatch", "family_cpu_seconds", "repeat"]

_LEAST_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class Request:
    """What a contender is asked to do.

    Attributes:
        url: Where its database or broker is, empty and its own; without one, nothing is needed.
        folder: For files of its own.
        size: How many of whatever is counted.
        slots: How many bodies run at a time.
        options: What else tells this contender from others of the same function.
        seconds: What the work may take, warm-up aside; whatever so many take, if it isn't told.
    """

    url: str
    folder: str
    size: int
    slots: int
    options: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured in one turn: work done in a time, or samples.

    Attributes:
        done: How many of what is counted.
        seconds: What they took together.
        cpu_seconds: Processor time of the contender's processes meanwhile; a database server isn't in it.
        samples: Single measurements, in the unit of their row.
        more: Other measurements by name.
    """

    done: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    samples: tuple[float, ...] = ()
    more: Mapping[str, float] = field(default_factory=dict)

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        told: dict[str, Any] = json.loads(text)
        told["samples"] = tuple(told["samples"])
        return cls(**told)

    @property
    def value(self) -> float:
        """How many a second; of samples, their median."""
        return median(self.samples) if self.samples else self.done / self.seconds

    @property
    def cpu_ms(self) -> float | None:
        """Processor time for each of what was done."""
        return 1e3 * self.cpu_seconds / self.done if self.cpu_seconds and self.done else None


class Pace:
    """How much of its work a contender does: a little that warms up, then what it is measured by.

    That is all it was asked for; or, where the request tells seconds, as much as fits into them at the pace of what was
    done before, which is done anew with more as long as it takes less than half of them.

    Args:
        request: What is asked.
        first: How many warm up.
    """

    def __init__(self, request: Request, first: int) -> None:
        self._request = request
        self._measured: Figures | None = None
        self._is_warm = False
        self.size = min(first, request.size)
        """How many to do next."""

    @property
    def is_found(self) -> bool:
        return self._measured is not None

    @property
    def figures(self) -> Figures:
        """What was measured."""
        assert self._measured is not None
        return self._measured

    def note(self, figures: Figures) -> None:
        """Tell what doing `size` of it took."""
        most, seconds = self._request.size, self._request.seconds
        if self._is_warm and (seconds is None or figures.seconds >= seconds / 2 or self.size == most):
            self._measured = figures
            return
        self._is_warm = True
        fitting = most if seconds is None else int(seconds * self.size / figures.seconds)
        self.size = min(most, max(self.size, fitting))


def repeat(count: int, seconds: float | None) -> Iterator[int]:
    """Numbers from zero: so many, or no more than ten once the seconds are over."""
    ends = math.inf if seconds is None else time.monotonic() + seconds
    for number in range(count):
        if number >= _LEAST_SAMPLES and time.monotonic() >= ends:
            return
        yield number


class Stopwatch:
    """Begins when it is made.

    Args:
        apart: A child process whose processor time isn't the contender's: its server.
    """

    def __init__(self, apart: int | None = None) -> None:
        self._apart = apart
        self._cpu = family_cpu_seconds(apart)
        self._began = time.perf_counter()

    def stop(self, done: int, **more: float) -> Figures:
        """What it took until now."""
        seconds = time.perf_counter() - self._began
        return Figures(done, seconds, family_cpu_seconds(self._apart) - self._cpu, more=more)


def family_cpu_seconds(apart: int | None = None) -> float:
    """Processor time of this process and, on Linux, of its children and theirs, but for one that is told apart."""
    family = (process for process in _descendants(os.getpid()) if process != apart)
    return time.process_time() + sum(map(_cpu_seconds_of, family))


def _descendants(process: int) -> Iterator[int]:
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found = children.read_text(encoding="ascii").split()
        except OSError:  # it has just ended
            continue
        for child in map(int, found):
            yield child
            yield from _descendants(child)


def _cpu_seconds_of(process: int) -> float:
    try:
        told = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:  # it has just ended
        return 0.0
    user, system = told.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
