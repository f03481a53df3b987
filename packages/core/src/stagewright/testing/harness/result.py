"""How a run in a harness stands."""

from dataclasses import dataclass, field

from stagewright.errors import UnexpectedStatusError
from stagewright.events import Event
from stagewright.json_values import Json
from stagewright.records import ErrorRecord, StageRecord
from stagewright.status import Status
from stagewright.testing.harness.report import HarnessTickReport

__all__ = ["HarnessResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessResult:
    """A run in a harness, as it stood when this was made.

    Attributes:
        run_id: The run.
        status: Its status.
        output: Its output, as JSON; None unless it is COMPLETED.
        error: Why it FAILED, else None.
        stages: Its stages, by execution group, then by stage number.
        events: Its events, in order.
        reports: The ticks that were made for this result, in order.
        timeline: All of it for people to read; it belongs into messages of failed assertions.
    """

    run_id: str
    status: Status
    output: Json
    error: ErrorRecord | None
    stages: tuple[StageRecord, ...]
    events: tuple[Event, ...]
    reports: tuple[HarnessTickReport, ...]
    timeline: str = field(default="", compare=False)

    def stage(self, stage_id: str) -> StageRecord:
        """The stage of that id.

        Raises:
            LookupError: If the run hasn't come to it, or its workflow has none.
        """
        for stage in self.stages:
            if stage.stage_id == stage_id:
                return stage
        reached = ", ".join(stage.stage_id for stage in self.stages) or "none"
        raise LookupError(f"run {self.run_id!r} has no stage {stage_id!r}; it has come to {reached}")

    def assert_status(self, expected: Status | str) -> None:
        """Fail with the run's timeline unless it has that status.

        Raises:
            UnexpectedStatusError: If it has another; it is an AssertionError too.
        """
        __tracebackhide__ = True
        if self.status != expected:
            raise UnexpectedStatusError(self.run_id, self.status, str(expected), self.timeline)

    def __repr__(self) -> str:
        where = "" if self.error is None or self.error.stage_id is None else f": {self.error.stage_id}"
        ending = "" if self.error is None else f"{where}: {self.error}"
        return f"<HarnessResult {self.run_id} {self.status}{ending}>"
