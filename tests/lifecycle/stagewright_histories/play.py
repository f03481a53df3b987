"""Playing a history on several stores, one action after the other, each on all of them."""

from collections.abc import Awaitable, Callable, Sequence

from stagewright.testing import assert_consistent
from stagewright_histories.actions import History, Pass
from stagewright_histories.differences import differences
from stagewright_histories.rows import blobs_of, rows_of
from stagewright_histories.world import World

__all__ = ["play"]

_MOST_SHOWN = 30


async def play(history: History, worlds: Sequence[World], let_pass: Callable[[int], Awaitable[None]]) -> None:
    """Play a history; every store comes to the same, after each action and at the end, and is consistent.

    Args:
        history: What is done.
        worlds: Where, each over an empty store.
        let_pass: Moves the one clock of all of them.

    Raises:
        AssertionError: Naming the action after which they differ, and each place where they do.
    """
    for number, action in enumerate(history.actions):
        if isinstance(action, Pass):
            await let_pass(action.seconds)
        else:
            outcomes = [await world.do(action) for world in worlds]
            _compare(f"what came of action {number}, {action}", worlds, outcomes)
        _compare(
            f"rows after action {number}, {action}", worlds, [await rows_of(world.kernel) for world in worlds]
        )
        _compare(
            f"what the sink was told by action {number}, {action}",
            worlds,
            [world.sink.told for world in worlds],
        )
    _compare("blobs at the end", worlds, [await blobs_of(world.kernel) for world in worlds])
    for world in worlds:
        await assert_consistent(world.kernel)


def _compare(what: str, worlds: Sequence[World], found: Sequence[object]) -> None:
    told: list[str] = []
    for world, value in zip(worlds[1:], found[1:], strict=True):
        differ = differences(found[0], worlds[0].names, value, world.names)
        told += [f"{worlds[0].name} and {world.name} at {one}" for one in differ]
    if told:
        raise AssertionError("\n".join([f"{what}:", *told[:_MOST_SHOWN]]))
