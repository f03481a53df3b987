"""What a redrive keeps of a run, what it opens again, and what it takes away."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, Literal, TypeAlias

from stagewright.kernel.command import Id
from stagewright.records import StageRecord, StoredStage
from stagewright.status import Status

__all__ = ["FromStage", "LastFailure", "RedriveOrigin", "RedrivePlan", "Refused", "Start", "plan_redrive"]

_DONE: Final = (Status.COMPLETED, Status.SKIPPED)


@dataclass(frozen=True, slots=True)
class LastFailure:
    """Go on where the run came to its end: at its first stage that isn't COMPLETED, or at its last stage."""

    kind: Literal["lastFailure"] = "lastFailure"


@dataclass(frozen=True, slots=True)
class Start:
    """Begin anew: nothing that the run has done is kept."""

    kind: Literal["start"] = "start"


@dataclass(frozen=True, slots=True)
class FromStage:
    """Execute this stage again, and all that comes after its group.

    Attributes:
        stage_id: The stage. Every group before its own has to be COMPLETED.
    """

    stage_id: Id
    _: KW_ONLY
    kind: Literal["stage"] = "stage"


RedriveOrigin: TypeAlias = LastFailure | Start | FromStage


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """What becomes of a run's stages.

    Attributes:
        from_stage_id: The stage that is executed first, or one of those.
        group: Its group, from 1.
        kept: What stays as it is.
        reopened: What gets another attempt under its record, so that its completed steps are found.
        removed: What is taken away, to be made anew when its turn comes.
    """

    from_stage_id: str
    group: int
    kept: tuple[StoredStage, ...] = ()
    reopened: tuple[StoredStage, ...] = ()
    removed: tuple[StoredStage, ...] = ()

    @property
    def superseded(self) -> tuple[StoredStage, ...]:
        """What is opened again or removed, in the order of the workflow as it was."""
        return tuple(_ordered((*self.reopened, *self.removed)))


@dataclass(frozen=True, slots=True)
class Refused:
    """The run can't be redriven from there; it would need this."""

    needed: str


def plan_redrive(
    stages: Sequence[StoredStage], groups: Sequence[Sequence[str]], origin: RedriveOrigin
) -> RedrivePlan | Refused:
    """Decide what a redrive does.

    Args:
        stages: The run's stage records.
        groups: The stage ids of each group of the workflow that the run goes on with, the first group first.
        origin: From where.
    """
    ordered = _ordered(stages)
    if isinstance(origin, Start):
        return RedrivePlan(from_stage_id=groups[0][0], group=1, removed=tuple(ordered))
    if isinstance(origin, FromStage):
        target = origin.stage_id
    elif ordered:
        target = next((stage for stage in ordered if not _is_done(stage)), ordered[-1]).stage_id
    else:
        return Refused("a stage that was begun; redrive it from Start()")
    group_of = {id: number for number, group in enumerate(groups, start=1) for id in group}
    if target not in group_of:
        return Refused(f"stage {target!r} in the version it goes on with; redrive it from Start()")
    plan = _divided(ordered, group_of, target)
    return _obstacle(ordered, groups[: plan.group - 1], plan) or plan


def _divided(ordered: Sequence[StoredStage], group_of: dict[str, int], target: str) -> RedrivePlan:
    group = group_of[target]
    kept, reopened, removed = [], [], []
    for stage in ordered:
        # What the version has no more is history if it is done, and in the way if it isn't.
        place = group_of.get(stage.stage_id, 0 if _is_done(stage) else group + 1)
        if place == 0 and stage.execution_group >= group:
            place = group + 1
        if place > group:
            removed.append(stage)
        elif place < group or (stage.stage_id != target and _is_done(stage)):
            kept.append(stage)
        else:
            reopened.append(stage)
    return RedrivePlan(
        from_stage_id=target,
        group=group,
        kept=tuple(kept),
        reopened=tuple(reopened),
        removed=tuple(removed),
    )


def _obstacle(
    stages: Sequence[StoredStage], earlier: Sequence[Sequence[str]], plan: RedrivePlan
) -> Refused | None:
    statuses = {stage.stage_id: stage.status for stage in stages}
    for stage_id in (stage_id for group in earlier for stage_id in group):
        status = statuses.get(stage_id)
        if status not in _DONE:
            found = "was never begun" if status is None else f"is {status}"
            needed = f"every stage before group {plan.group} COMPLETED"
            return Refused(f"{needed}, and stage {stage_id!r} {found}; redrive it from there or from Start()")
    return None


def _is_done(stage: StageRecord) -> bool:
    return stage.status in _DONE


def _ordered(stages: Sequence[StoredStage]) -> list[StoredStage]:
    return sorted(stages, key=lambda stage: (stage.execution_group, stage.stage_number))
