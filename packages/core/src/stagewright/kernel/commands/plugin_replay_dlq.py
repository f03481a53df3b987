"""`plugin.replayDLQ`: offer events again that were given up."""

from dataclasses import dataclass
from typing import ClassVar

from stagewright.kernel.command import Command, PositiveCount
from stagewright.kernel.unit_of_work import UnitOfWork

__all__ = ["ReplayDeadLetters", "ReplayDeadLettersResult", "handle"]


@dataclass(frozen=True, slots=True)
class ReplayDeadLettersResult:
    """How many events are offered again."""

    replayed: int


@dataclass(frozen=True, slots=True)
class ReplayDeadLetters(Command[ReplayDeadLettersResult]):
    """Offer up to `max_events` dead letters again, with a new budget of refusals; those given up first go first.

    The later events of their runs were delivered meanwhile, so these come out of order; `event.sequence` says where
    they belong. Whoever has accepted one already isn't given it again.
    """

    type: ClassVar[str] = "plugin.replayDLQ"

    max_events: PositiveCount = 100


async def handle(command: ReplayDeadLetters, unit: UnitOfWork) -> ReplayDeadLettersResult:
    """Make them pending; the next flush delivers them."""
    replayed = await unit.tx.replay_dlq_events(command.max_events)
    if replayed:
        # There is something to deliver, and the runs of it were held meanwhile.
        unit.notify("runs")
    return ReplayDeadLettersResult(replayed)
