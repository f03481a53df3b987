"""What a harness says about a tick."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from stagewright.records import ErrorRecord

__all__ = ["HarnessTickReport", "StageOutcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    """How one execution of a stage ended.

    Attributes:
        run_id: The run.
        stage_id: The stage.
        outcome: Completed, suspended or failed.
        error: Why it failed, else None.
        will_retry: Whether the stage is tried again.
    """

    run_id: str
    stage_id: str
    outcome: Literal["completed", "suspended", "failed"]
    error: ErrorRecord | None = None
    will_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessTickReport:
    """What one tick of a harness did.

    Attributes:
        claimed: Runs that were set going.
        executed: Bodies that were invoked.
        outcomes: How each of them ended.
        suspended_checked: Suspended stages that were due.
        resumed: Those of them that go on.
        events_flushed: Events that the sink accepted.
        advanced: By how much the clock was moved on, because there was nothing else to do.
        idle: Whether there was nothing to do, and nothing to wait for either.
    """

    claimed: int = 0
    executed: int = 0
    outcomes: tuple[StageOutcome, ...] = ()
    suspended_checked: int = 0
    resumed: int = 0
    events_flushed: int = 0
    advanced: timedelta = timedelta(0)
    idle: bool = False
