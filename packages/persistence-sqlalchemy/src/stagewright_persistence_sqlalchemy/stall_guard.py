"""Ending the transactions of an event loop that is blocked, where everybody else would wait for them."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["StallGuard"]

_LOOK_EVERY: Final = 0.1
_PATIENCE: Final = 0.5
_IDLE_LOOKS: Final = 50


@dataclass
class _Question:
    """A loop's chance to give a sign of life."""

    waited: float = 0.0
    is_answered: bool = False

    def answer(self) -> None:
        self.is_answered = True


class OpenTransaction(Protocol):
    """A transaction that an event loop has open."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that sends its statements."""
        ...

    def give_up(self) -> None:
        """Ask for its end, from a thread that isn't the loop's; it ends only if the loop is still blocked then."""
        ...


class StallGuard:
    """Watches, from a thread, the event loops that have transactions open.

    The thread begins with the first transaction, and ends when there has been none for some seconds.

    Args:
        patience: After how many seconds a loop that doesn't answer counts as blocked.
    """

    def __init__(self, *, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._open: set[OpenTransaction] = set()
        self._questions: dict[asyncio.AbstractEventLoop, _Question] = {}
        self._turn = threading.Lock()
        self._runs = False

    def enter(self, transaction: OpenTransaction) -> None:
        """Watch the loop of a transaction that begins."""
        with self._turn:
            self._open.add(transaction)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="stagewright-stall-guard", daemon=True).start()

    def leave(self, transaction: OpenTransaction) -> None:
        """The transaction has ended."""
        with self._turn:
            self._open.discard(transaction)

    def is_blocked(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a loop has been asked for a sign of life and hasn't given it for longer than the patience."""
        asked = self._questions.get(loop)
        return asked is not None and not asked.is_answered and asked.waited >= self._patience

    def _run(self) -> None:
        ticks, idle = threading.Event(), 0
        while True:
            ticks.wait(_LOOK_EVERY)
            with self._turn:
                opened = list(self._open)
                idle = 0 if opened else idle + 1
                if idle > _IDLE_LOOKS:
                    self._runs = False
                    return
            self._ask({one.loop for one in opened})
            for transaction in opened:
                if self.is_blocked(transaction.loop):
                    transaction.give_up()

    def _ask(self, loops: set[asyncio.AbstractEventLoop]) -> None:
        unanswered = {loop: asked for loop, asked in self._questions.items() if not asked.is_answered}
        self._questions = {loop: unanswered.get(loop) or _asked(loop) for loop in loops}
        for asked in unanswered.values():
            # Counted in looks, not by a clock: a process that stood still as a whole has blocked nothing.
            asked.waited += _LOOK_EVERY


def _asked(loop: asyncio.AbstractEventLoop) -> _Question:
    question = _Question()
    try:
        loop.call_soon_threadsafe(question.answer)
    except RuntimeError:  # the loop has been closed, and its transactions with it
        question.answer()
    return question
