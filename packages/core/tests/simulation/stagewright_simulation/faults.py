"""What goes wrong, and when: data, so that a scenario can be shown, and shrunk by leaving some of it out."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["BUSY", "DeliveryFault", "Fault", "FaultPlan", "PortFault", "TimedFault"]

BUSY: Final = "busy"
"""In the place of a process: whichever worker has a job by then."""

_IDLE: Final = frozenset(
    (
        "begin",
        "claim_pending_runs",
        "claim_unpublished_outbox_events",
        "dequeue",
        "expire_runaway",
        "get_owed_stages",
        "get_stuck_runs",
        "get_suspended_stages",
        "release_stale",
        "savepoint",
        "wait_for_work",
    )
)
"""What processes with nothing to do call again and again."""

PortFaultKind: TypeAlias = Literal["crash", "freeze", "error", "lost-reply"]
TimedFaultKind: TypeAlias = Literal[
    "crash",
    "freeze",
    "jump",
    "restart",
    "cut-off",
    "blobs-away",
    "sink-refuses",
    "sink-crawls",
    "sink-forgets",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortFault:
    """Something happens to a process at one of its calls.

    Attributes:
        role: The process.
        moment: Which call: a method's name, `begin`, `commit`, `committed`, `sink.emit`, `sink.emitted`; `*` is
            any but those that processes make that have nothing to do.
        nth: The how-manieth such call of this process, over all its incarnations.
        kind: `crash`, `freeze`, `error` before anything was done, `lost-reply` after all of it was done.
        length: How long the process is away or frozen, in seconds.
    """

    role: str
    moment: str
    nth: int
    kind: PortFaultKind
    length: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFault:
    """Something happens at a time.

    Attributes:
        at: When, in seconds.
        kind: What.
        role: To which process, or `BUSY`; empty where it is a store or the sink.
        length: How long it lasts, in seconds.
        amount: By how much a clock jumps, or how long the sink takes, in seconds.
    """

    at: float
    kind: TimedFaultKind
    role: str = ""
    length: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFault:
    """A job is delivered a second time.

    Attributes:
        role: The worker that claims it.
        nth: The how-manieth job of that worker.
        to: The worker that is given it too.
        delay: How many seconds later.
    """

    role: str
    nth: int
    to: str
    delay: float


Fault: TypeAlias = PortFault | TimedFault | DeliveryFault


class FaultPlan:
    """The faults at calls of one process."""

    def __init__(self, faults: Iterable[PortFault]) -> None:
        self._by_moment: dict[str, dict[int, PortFault]] = {}
        for fault in faults:
            self._by_moment.setdefault(fault.moment, {})[fault.nth] = fault
        self._seen: Counter[str] = Counter()

    def due(self, moment: str) -> PortFault | None:
        """Count a call, and say what happens at it."""
        found: PortFault | None = None
        for name in (moment, "*"):
            at = self._by_moment.get(name)
            if at and not (name == "*" and moment in _IDLE):
                self._seen[name] += 1
                found = at.pop(self._seen[name], None) or found
        return found

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        self._by_moment.clear()
