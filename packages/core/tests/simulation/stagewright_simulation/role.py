"""A process with its machine: what it runs, when it is gone, and what happens to it at its calls."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, NoReturn

from stagewright.errors import OutcomeUnknownError, TransientError
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob
from stagewright_simulation.clocks import SimIds, SkewedClock
from stagewright_simulation.faults import DeliveryFault, FaultPlan, PortFault
from stagewright_simulation.loop import CURRENT, Actor

if TYPE_CHECKING:
    from stagewright_simulation.world import World

__all__ = ["Role"]


class Role:
    """One process, again and again.

    Args:
        world: What it lives in.
        name: What it is called.
        main: What it runs.
        clock: Its machine's clock.
        faults: What happens to it at its calls.
        deliveries: Which of its jobs are delivered a second time.

    Attributes:
        version: Which version of the workflows it serves, from 0.
        incarnation: How often it was started.
        actor: It itself, while it is alive.
        inbox: Jobs that are delivered to it besides those that it claims, and when.
        claimed: How many jobs it has claimed, or was handed.
        progress: What it wants to remember over its incarnations.
        is_done: Set once it has nothing left to do, where it says so.
        ids: Where this incarnation has its ids from.
    """

    def __init__(
        self,
        world: "World",
        name: str,
        main: Callable[["Role"], Awaitable[None]],
        *,
        clock: SkewedClock,
        faults: list[PortFault],
        deliveries: list[DeliveryFault],
    ) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.version = 0
        self.incarnation = 0
        self.actor: Actor | None = None
        self.inbox: list[tuple[float, DequeuedJob]] = []
        self.claimed = 0
        self.progress = 0
        self.is_done = asyncio.Event()
        self.ids = SimIds(clock, name)
        self.plan = FaultPlan(faults)
        self.deliveries = {fault.nth: fault for fault in deliveries}
        self.rng = random.Random(f"{world.scenario.seed} {name}")
        self._choices = random.Random(f"{world.scenario.seed} {name} goes on")
        self._main_of = main
        self._main: asyncio.Task[Any] | None = None

    @property
    def worker_id(self) -> str:
        """The name of this incarnation."""
        return f"{self.name}.{self.incarnation}"

    def kernel(self, version: int | None = None) -> Kernel:
        """A kernel of this incarnation."""
        return self.world.make_kernel(self, self.version if version is None else version)

    def goes_on(self) -> bool:
        """Whether it takes what follows at once, this time."""
        share = self.world.scenario.topology.goes_on
        return share > 0 and self._choices.random() < share

    def note(self, error: BaseException, doing: str) -> None:
        """Say that something failed; what no store or process could be blamed for is a broken promise."""
        self.world.note_error(self.worker_id, error, doing)

    # Life and death

    def start(self) -> None:
        """Begin another incarnation, unless one is alive."""
        if self.actor is not None or self.world.is_over:
            return
        self.incarnation += 1
        self.ids = SimIds(self.clock, self.worker_id)
        self.actor = Actor(self.worker_id, self)
        loop = self.world.loop
        loop.begin(self.actor)
        context = Context()
        context.run(CURRENT.set, self.actor)
        self.world.history.tell(self.worker_id, f"starts, serving version {self.version}")
        self._main = loop.create_task(self._live(), context=context)

    def die(self, away: float | None) -> None:
        """End at once, and come back after so many seconds; None is not by itself."""
        actor, self.actor = self.actor, None
        if actor is None:
            return
        self.world.loop.bury(actor)
        for database in self.world.databases:
            database.disconnect(actor)
        self.world.history.tell(actor.name, "is gone" if away is None else f"crashes, for {away} s")
        if away is not None:
            self.world.loop.call_later(away, self.start, context=Context())

    def freeze(self, length: float) -> None:
        """Get no turn for so many seconds, while everything else goes on."""
        if self.actor is not None:
            self.actor.frozen_until = self.world.loop.time() + length
            self.world.history.tell(self.worker_id, f"is frozen for {length} s")

    def thaw(self) -> None:
        """Go on at once."""
        if self.actor is not None:
            self.actor.frozen_until = 0.0

    async def restart(self) -> None:
        """End in order, or at once if that takes too long, and begin anew."""
        actor, main = self.actor, self._main
        if actor is not None and main is not None:
            self.world.history.tell(actor.name, "is asked to end")
            main.cancel()
            await asyncio.wait({main}, timeout=20)
            if self.actor is actor:
                self.die(None)
        self.start()

    async def _live(self) -> None:
        try:
            await self._main_of(self)
        except asyncio.CancelledError:
            return
        except Exception as error:
            self.note(error, "its main loop")

    # Calls

    async def reach(self, store: str, moment: str) -> None:
        """A call of a store: whatever is to happen to this process there happens."""
        actor = CURRENT.get()
        assert actor is not None  # whoever has a role is an actor
        world = self.world
        world.history.call(actor.name, store, moment)
        fault = self.plan.due(moment)
        if fault is not None:
            await self._suffer(fault, store, moment)
        if world.windows.is_open("cut-off", self.name) and moment != "committed":
            raise TransientError("the network is down")
        if store == "blobs" and moment != "committed" and world.windows.is_open("blobs-away"):
            raise ConnectionError("the blob store is away")
        roll = self.rng.random()
        if moment == "committed":
            if roll < 0.9:
                return
            roll = (roll - 0.9) * 10
        if world.scenario.slowness and not world.is_calm:
            await asyncio.sleep(roll * world.scenario.slowness)
        elif roll < 0.75:
            await asyncio.sleep(0)
        elif roll < 0.97:
            await asyncio.sleep((roll - 0.75) * 0.1)
        else:
            await asyncio.sleep((roll - 0.97) * 60)

    async def _suffer(self, fault: PortFault, store: str, moment: str) -> None:
        self.world.history.tell(self.worker_id, f"{fault.kind} at {moment} of {store}")
        match fault.kind:
            case "crash":
                self.die(fault.length)
                await _never()
            case "freeze":
                self.freeze(fault.length)
                await asyncio.sleep(0)
            case "error" if moment in ("committed", "sink.emitted"):
                # By then it is done, and whoever asked can't know.
                self._lose_reply(store)
            case "error" if store == "blobs":
                raise ConnectionError("the connection broke")
            case "error":
                raise TransientError("the connection broke")
            case "lost-reply":
                self._lose_reply(store)

    def _lose_reply(self, store: str) -> NoReturn:
        if store in ("sink", "blobs"):
            raise ConnectionError("the reply is lost")
        raise OutcomeUnknownError("the reply is lost")


async def _never() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nothing wakes the dead")
