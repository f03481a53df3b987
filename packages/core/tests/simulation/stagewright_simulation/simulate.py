"""Running one scenario from its beginning to the last check."""

import asyncio
import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from stagewright.commands import FlushOutbox, PurgeRuns, ReplayDeadLetters
from stagewright.testing import assert_consistent
from stagewright_simulation.clocks import moment
from stagewright_simulation.history import Violation
from stagewright_simulation.loop import OutOfPatience
from stagewright_simulation.promises.endings import is_at_rest, promises_at_rest, what_is_open
from stagewright_simulation.promises.owing import OwedJobs
from stagewright_simulation.promises.purges import promises_after_purge
from stagewright_simulation.promises.rows import CommitWatch
from stagewright_simulation.promises.telling import (
    promises_of_answers,
    promises_of_events,
    promises_of_reports,
    promises_of_retries,
)
from stagewright_simulation.scenario import Scenario
from stagewright_simulation.world import World

__all__ = ["Outcome", "run_scenario"]

_LOOK_EVERY: Final = 15.0
_CALLS_OF_A_PURGE: Final = 60
_REST_BY: Final = 3 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a simulation ended.

    Attributes:
        scenario: What was simulated.
        violations: The promises that were broken.
        story: What happened, for people.
        fingerprint: Equal for equal simulations.
        calls: How many calls of stores there were.
        seconds: How long it lasted, in virtual seconds.
    """

    scenario: Scenario
    violations: tuple[Violation, ...]
    story: tuple[tuple[float, str, str], ...]
    fingerprint: int
    calls: int
    seconds: float

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the broken promises."""
        return tuple(sorted({violation.promise for violation in self.violations}))


def run_scenario(scenario: Scenario) -> Outcome:
    """Simulate a scenario and check all promises."""
    with _undisturbed():
        return _simulated(scenario)


def _simulated(scenario: Scenario) -> Outcome:
    with World(scenario).closing() as world:
        watch = CommitWatch(world)
        try:
            world.loop.run_until_complete(_live(world, watch))
        except OutOfPatience as error:
            world.history.violate("every-run-ends", f"{error}: {list(what_is_open(world))[:5]}")
        return Outcome(
            scenario=scenario,
            violations=tuple(dict.fromkeys(world.history.violations)),
            story=tuple(world.history.story),
            fingerprint=world.history.fingerprint,
            calls=world.history.calls,
            seconds=world.loop.time(),
        )


async def _live(world: World, watch: CommitWatch) -> None:
    world.begin()
    await asyncio.sleep(world.scenario.chaos)
    world.calm_down()
    if world.scenario.blackout:
        for role in world.roles.values():
            role.die(None)
        await _check_rows(world)
    world.serve_all_versions()
    await _rest(world)
    await _deliver_everything(world)
    for violation in _promises(world, watch):
        world.history.violate(violation.promise, violation.what)
    await _check_rows(world)
    await _purge_everything(world)


async def _rest(world: World) -> None:
    """Wait until nothing moves any more, or it should not any more."""
    until = world.loop.time() + _REST_BY
    owed = OwedJobs(world)
    while world.loop.time() < until:
        await asyncio.sleep(_LOOK_EVERY)
        owed.look()
        if world.are_actions_done and is_at_rest(world):
            return


async def _deliver_everything(world: World) -> None:
    """Dead letters are offered once more, now that the sink is well."""
    kernel = world.observer()
    while (await kernel.dispatch(ReplayDeadLetters())).replayed:
        while (await kernel.dispatch(FlushOutbox())).published:
            continue
    world.history.tell("outside", "everything is delivered")


def _promises(world: World, watch: CommitWatch) -> Iterator[Violation]:
    yield from promises_at_rest(world)
    yield from promises_of_events(world, watch)
    yield from promises_of_reports(world, watch)
    yield from promises_of_answers(world, watch)
    yield from promises_of_retries(world, watch)


async def _check_rows(world: World) -> None:
    try:
        await assert_consistent(world.observer())
    except AssertionError as error:
        world.history.violate("rows-agree", str(error))


async def _purge_everything(world: World) -> None:
    """Purge all runs; whoever does it first is cut off in the middle, and finishes it the next time."""
    undertaker = world.undertaker(cut_off_at=1 + world.scenario.seed % _CALLS_OF_A_PURGE)
    undertaker.start()
    await undertaker.is_done.wait()
    kernel = world.observer()
    later = moment(world.loop.time()) + timedelta(days=2)
    while (await kernel.dispatch(PurgeRuns(later))).purged:
        continue
    for violation in promises_after_purge(world):
        world.history.violate(violation.promise, violation.what)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Neither the garbage collector nor log lines come in between; what is left is collected at the end."""
    had_gc, level = gc.isenabled(), logging.root.manager.disable
    gc.disable()
    gc.freeze()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        with warnings.catch_warnings():
            # Coroutines of processes that ended are never awaited.
            warnings.simplefilter("ignore")
            gc.collect()
        gc.unfreeze()
        if had_gc:
            gc.enable()
