"""An event loop on which nothing is left to chance: virtual time, and a seeded choice of whose turn it is."""

import asyncio
import heapq
import random
import threading
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any, Final, TypeVarTuple

__all__ = ["CURRENT", "Actor", "OutOfPatience", "SimLoop"]

Ts = TypeVarTuple("Ts")
_CLOSINGS: Final = 30


class OutOfPatience(Exception):
    """The simulation goes on without getting anywhere, or nothing is left that could happen."""


class Actor:
    """One incarnation of a process: its tasks stop together, are frozen together, and take turns in order.

    Attributes:
        name: Who it is.
        is_alive: Whether its tasks go on.
        frozen_until: Until when none of its tasks gets a turn, in seconds of virtual time.
        queue: What it does next.
    """

    def __init__(self, name: str, role: object = None) -> None:
        self.name = name
        self.role = role
        self.is_alive = True
        self.frozen_until = 0.0
        self.queue: deque[asyncio.Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.buried: list[object] = []

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Hold on to a task, so that a process that is gone leaves nothing to the garbage collector."""
        if len(self.tasks) >= 512:
            self.tasks = [one for one in self.tasks if not one.done()]
        self.tasks.append(task)


CURRENT: Final[ContextVar[Actor | None]] = ContextVar("simulated_actor", default=None)
"""To whom the running code belongs; None for what stands outside of all processes."""


class SimLoop(asyncio.BaseEventLoop):
    """A loop whose time moves when there is nothing to do.

    Callbacks of one actor run in the order in which they became due, as on a loop of its own; between actors a seeded
    choice is made each time.

    Args:
        choices: Decides whose turn it is.
        patience: How many callbacks may run in all.
    """

    def __init__(self, choices: random.Random, *, patience: int) -> None:
        super().__init__()
        self._choices = choices
        self._now = 0.0
        self._outside = Actor("outside")
        self._actors = [self._outside]
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_number = 0
        self._outside_context = Context()
        self._has_ended = False
        self._home = threading.get_ident()
        self.patience = patience
        self.turns = 0
        self.everybody: list[Actor] = [self._outside]
        self.set_task_factory(self._made_task)

    # What an event loop has to have

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Let a callback run in its actor's turn."""
        if threading.get_ident() != self._home:
            raise RuntimeError("a thread has come into the simulation, whose turns nobody decides")
        handle = asyncio.Handle(callback, args, self, context)
        if not self._has_ended:
            self._put(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """What reaches one process from another: it belongs to neither, and gets there if the sender is gone."""
        return self.call_soon(callback, *args, context=context or self._outside_context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Let a callback run at a virtual time."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_number += 1
        heapq.heappush(self._timers, (when, self._timer_number, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Let a callback run after so many virtual seconds."""
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is passed over when its time comes."""

    def _write_to_self(self) -> None:
        """Nothing sleeps that would have to be woken."""

    def _run_once(self) -> None:
        self._release_due()
        ready = self._ready_actors()
        while not ready:
            self._move_on()
            ready = self._ready_actors()
        actor = ready[0] if len(ready) == 1 else ready[int(self._choices.random() * len(ready))]
        handle = actor.queue.popleft()
        self.turns += 1
        if self.turns > self.patience:
            raise OutOfPatience(f"{self.patience} turns, and no end")
        if not handle.cancelled():
            handle._run()

    # Actors

    def begin(self, actor: Actor) -> None:
        """An actor comes to life."""
        self._actors.append(actor)
        self.everybody.append(actor)

    def bury(self, actor: Actor) -> None:
        """Stop an actor: none of its tasks gets another turn, not even to tidy up."""
        actor.is_alive = False
        actor.buried.extend(actor.queue)
        actor.queue.clear()
        if actor in self._actors:
            self._actors.remove(actor)

    def end(self) -> None:
        """Close what is left of all tasks, whose last words reach nobody."""
        self._has_ended = True
        self.close()
        with warnings.catch_warnings():
            # What is begun in somebody's last words is never awaited.
            warnings.simplefilter("ignore")
            for actor in self.everybody:
                for task in actor.tasks:
                    if not task.done():
                        _close(task)
                actor.buried.clear()
                actor.tasks.clear()
            self.everybody.clear()
            self._timers.clear()

    def _made_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        context: Context | None = options.get("context")
        actor = CURRENT.get() if context is None else context.get(CURRENT)
        (actor or self._outside).keep(task)
        return task

    def _put(self, handle: asyncio.Handle) -> None:
        actor = handle._context.get(CURRENT) or self._outside  # type: ignore[attr-defined]  # typeshed hides it
        if actor.is_alive:
            actor.queue.append(handle)
        else:
            actor.buried.append(handle)

    def _ready_actors(self) -> list[Actor]:
        now = self._now
        return [actor for actor in self._actors if actor.queue and actor.frozen_until <= now]

    def _release_due(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                self._put(timer)

    def _move_on(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        moments = [actor.frozen_until for actor in self._actors if actor.queue]
        if timers:
            moments.append(timers[0][0])
        if not moments:
            raise OutOfPatience("nothing is left that could happen")
        self._now = max(self._now, min(moments))
        self._release_due()


def _close(task: "asyncio.Task[Any]") -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # typeshed hides it
    coroutine = task.get_coro()
    if coroutine is None:
        return
    for _ in range(_CLOSINGS):
        try:
            coroutine.close()
        except BaseException:  # noqa: S112 - it waits for something in its last words: it is closed once more
            continue
        return
