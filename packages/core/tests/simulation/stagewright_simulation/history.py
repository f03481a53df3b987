"""What was seen of a simulation: its story for people, and the facts that promises are checked against."""

import json
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stagewright_simulation.scenario import Action

__all__ = ["Answer", "Delivery", "History", "Violation", "digest", "token_of"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and how."""

    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the operator was told.

    Attributes:
        action: What it asked for.
        run_id: Of which run; empty for none.
        result: What came back, or the error.
        token: What its signal carried.
        began: When it asked.
        ended: When it was told.
    """

    action: Action
    run_id: str
    result: object
    token: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event that reached the sink."""

    event_id: str
    run_id: str
    sequence: int
    is_accepted: bool
    is_committed: bool


@dataclass(slots=True)
class History:
    """Everything that was seen.

    Attributes:
        story: When, who, what; for people.
        fingerprint: Of all calls at all stores and whose they were: equal for equal simulations.
        violations: Promises that were seen to be broken on the way.
        counts: How often something was done, by any name.
        recorded: The tokens that were ever committed as the result of a step, by stage record and step.
        invocations: The bodies that were begun, by their nonce: of which run.
    """

    now: Callable[[], float]
    story: list[tuple[float, str, str]] = field(default_factory=list)
    fingerprint: int = 0
    calls: int = 0
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    recorded: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    invocations: dict[str, str] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    run_ids: dict[int, str] = field(default_factory=dict)

    def tell(self, who: str, what: str) -> None:
        """Add a line to the story."""
        self.story.append((self.now(), who, what))

    def call(self, who: str, store: str, moment: str) -> None:
        """Note a call of a store."""
        self.calls += 1
        self.fingerprint = zlib.crc32(f"{self.now()!r}{who}{store}{moment}".encode(), self.fingerprint)

    def violate(self, promise: str, what: str) -> None:
        """Note that a promise is broken."""
        self.violations.append(Violation(promise, what))
        self.tell("promise", f"BROKEN {promise}: {what}")

    def next(self, *name: str) -> int:
        """Count something, from 1."""
        self.counts[name] += 1
        return self.counts[name]


def digest(value: Any) -> str:
    """A short text that differs where values do."""
    data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return f"{zlib.crc32(data):08x}"


def token_of(value: Any) -> str | None:
    """The token in a step's value, if it carries one."""
    token = value.get("token") if isinstance(value, dict) else None
    return token if isinstance(token, str) else None
