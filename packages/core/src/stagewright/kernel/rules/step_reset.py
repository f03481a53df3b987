"""What a redrive makes of the steps of a stage."""

from collections.abc import Sequence
from dataclasses import dataclass

from stagewright.json_values import Json
from stagewright.records import StepRecord

__all__ = ["StepReset", "abandoned_steps", "plan_step_reset"]


@dataclass(frozen=True, slots=True)
class StepReset:
    """What becomes of a stage record's steps.

    Attributes:
        kept: Completed ones, which go on answering with their results.
        reopened: Executions that came to no result; each is made again, and told that one was made before.
        dropped: Waits that came to no end; they begin anew.
    """

    kept: tuple[StepRecord, ...]
    reopened: tuple[StepRecord, ...]
    dropped: tuple[StepRecord, ...]


def plan_step_reset(steps: Sequence[StepRecord]) -> StepReset:
    """Decide about each step of a stage that is opened again."""
    kept = tuple(step for step in steps if step.status == "completed")
    left = [step for step in steps if step.status != "completed"]
    # An execution without a key of its own left no trace elsewhere that a second one could find.
    reopened = tuple(step for step in left if step.kind == "run" and step.external_key is not None)
    dropped = tuple(step for step in left if step not in reopened)
    return StepReset(kept, reopened, dropped)


def abandoned_steps(dropped: Sequence[StepRecord]) -> list[Json]:
    """Those of these steps that other systems may know, as an archive keeps them."""
    return [
        {"step_id": step.step_id, "status": step.status, "external_key": step.external_key}
        for step in dropped
        if step.external_key is not None
    ]
