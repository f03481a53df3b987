"""What follows for a run from the state of its stages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stagewright.records import StageRecord
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

__all__ = ["Complete", "Fail", "OpenGroup", "Progress", "Wait", "what_follows"]


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """The stages of this group are to be created, as far as they don't exist."""

    group: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Every group is done."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Nothing moves any more and this stage, the first of those that didn't complete, is why."""

    stage: StageRecord


@dataclass(frozen=True, slots=True)
class Wait:
    """At least one stage can still move."""


Progress: TypeAlias = OpenGroup | Complete | Fail | Wait


def what_follows(stages: Sequence[StageRecord], groups: Sequence[Sequence[str]]) -> Progress:
    """Decide what a RUNNING run does next.

    Args:
        stages: The run's stage records.
        groups: The stage ids of each group of the workflow, the first group first.
    """
    if any(stage.status in ACTIVE_STAGE_STATUSES for stage in stages):
        return Wait()
    ordered = sorted(stages, key=lambda stage: (stage.execution_group, stage.stage_number))
    for stage in ordered:
        if stage.status is not Status.COMPLETED and stage.status is not Status.SKIPPED:
            return Fail(stage)
    reached = ordered[-1].execution_group if ordered else 0
    present = {stage.stage_id for stage in stages}
    if reached > 0 and reached <= len(groups) and not present.issuperset(groups[reached - 1]):
        return OpenGroup(reached)
    return OpenGroup(reached + 1) if reached < len(groups) else Complete()
