"""Step calls in progress, and where those wait that suspend the stage."""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NoReturn

from stagewright.records import StepKind
from stagewright.runtime.steps.control_flow import StepSuspended

__all__ = ["CURRENT_CALL", "Parking", "StepCall", "Suspension"]

_ROUNDS: Final = 10
"""How often the loop goes round before nothing else is taken to be coming."""


@dataclass(slots=True, eq=False)
class StepCall:
    """A call of `ctx.step` in progress.

    Attributes:
        step_id: The step.
        kind: What it was asked for as.
        position: Where it stands among the requests of this invocation, from 1.
        parent: The call whose function made this one, if a function did.
        is_cut: Whether a call that its function made was suspended.
        is_lost: Whether its execution has lost its lease, so that nobody waits for it.
    """

    step_id: str
    kind: StepKind
    position: int
    parent: "StepCall | None"
    is_cut: bool = False
    is_lost: bool = False

    def cut_parents(self) -> None:
        """Note in the calls around this one that it was suspended."""
        for call in self.parents():
            call.is_cut = True

    def parents(self) -> "Iterator[StepCall]":
        """The calls around this one, the closest first."""
        call = self.parent
        while call is not None:
            yield call
            call = call.parent


CURRENT_CALL: Final[ContextVar[StepCall | None]] = ContextVar("stagewright_step_call", default=None)
"""The call whose function is running here."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why and until when an invocation ends without an outcome.

    Attributes:
        step_id: The step that waits, of several the one whose wait ends first.
        next_poll_at: When the stage is looked at next, in UTC.
    """

    step_id: str
    next_poll_at: datetime


class Parking:
    """Lets a call that has to wait do so until all others have settled too; then they all end as suspended.

    So no step that is being executed is cut off, and the earliest of all waits decides when the stage goes on.

    Args:
        now: The time.
        suspended: Called once the invocation is suspended.
        pause: How long to wait besides, in seconds, before nothing else is taken to be coming; a body in threads of
            its own is not heard on the loop at once.
    """

    def __init__(
        self, now: Callable[[], datetime], suspended: Callable[[], None], *, pause: float = 0.0
    ) -> None:
        self.suspension: Suspension | None = None
        self._now = now
        self._suspended = suspended
        self._pause = pause
        self._calls: dict[StepCall, None] = {}
        self._parked: dict[StepCall, tuple[datetime, asyncio.Future[None]]] = {}
        self._something_recorded = False
        self._is_closed = False
        self._concluding: asyncio.Task[None] | None = None

    @property
    def is_suspending(self) -> bool:
        """Whether a call waits, so that the invocation is about to end, or has ended so."""
        return bool(self._parked) or self.suspension is not None

    def enter(self, call: StepCall) -> None:
        """A call has begun."""
        self._calls[call] = None

    def leave(self, call: StepCall) -> None:
        """A call has returned or raised."""
        self._calls.pop(call, None)
        self._conclude_if_settled()

    def note_lost(self, call: StepCall) -> None:
        """A call's execution has lost its lease: a suspension waits for it no longer."""
        call.is_lost = True
        self._conclude_if_settled()

    def note_recorded(self) -> None:
        """A step has got its outcome, so the body may have more to do than wait."""
        if self._parked:
            self._something_recorded = True

    async def park(self, call: StepCall, until: datetime) -> NoReturn:
        """Wait until the invocation is suspended.

        Raises:
            StepSuspended: Once it is.
            CancelledError: If the body has ended meanwhile.
        """
        if self._is_closed and self.suspension is None:
            raise asyncio.CancelledError
        if self.suspension is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._parked[call] = (until, waiter)
            self._conclude_if_settled()
            try:
                await waiter
            finally:
                self._parked.pop(call, None)
                if not self._parked and self.suspension is None:
                    self._something_recorded = False
        call.cut_parents()
        raise StepSuspended(call.step_id, until)

    def close(self) -> None:
        """Give up those that still wait, because nobody waits for them."""
        self._is_closed = True
        if self._concluding is not None:
            self._concluding.cancel()
        for _, waiter in self._parked.values():
            waiter.cancel()

    def _conclude_if_settled(self) -> None:
        if self._concluding is None and not self._is_closed and self._are_all_parked():
            self._concluding = asyncio.get_running_loop().create_task(self._conclude())

    async def _conclude(self) -> None:
        try:
            for number in range(_ROUNDS):
                await asyncio.sleep(self._pause if number == 0 else 0)
                if not self._are_all_parked():
                    return
            self._suspend()
        finally:
            self._concluding = None

    def _are_all_parked(self) -> bool:
        """Whether every call waits, itself or for one that its function made."""
        if not self._parked:
            return False
        waiting = {parent for call in self._parked for parent in call.parents() if parent in self._calls}
        return all(call in self._parked or call in waiting or call.is_lost for call in self._calls)

    def _suspend(self) -> None:
        call, (until, _) = min(self._parked.items(), key=lambda item: item[1][0])
        self.suspension = Suspension(call.step_id, self._now() if self._something_recorded else until)
        for _, waiter in self._parked.values():
            if not waiter.done():
                waiter.set_result(None)
        self._suspended()
