"""What happened in the demo, as the database tells it."""

from dataclasses import dataclass
from datetime import datetime

from stagewright.records import StageRecord, StepRecord

__all__ = ["Story", "ToldStep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStep:
    """One step of the run.

    Attributes:
        stage_id: Its stage.
        record: Its row in the ledger.
        worker: The worker that recorded it.
        was_cut_off: Whether the killed worker had begun it and not recorded it.
    """

    stage_id: str
    record: StepRecord
    worker: str
    was_cut_off: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A run during which a worker was killed.

    Attributes:
        began_at: When the first worker was started, in UTC.
        killed_at: When it was killed.
        taken_over_at: When the second worker was started.
        ended_at: When the run completed.
        first: The label of the worker that was killed.
        second: The label of the one that took over.
        before: The steps that were recorded when the first was killed, by record id.
        stages: The stages at the end.
        steps: The steps at the end, by stage, in the order of their sequence.
    """

    began_at: datetime
    killed_at: datetime
    taken_over_at: datetime
    ended_at: datetime
    first: str
    second: str
    before: dict[str, StepRecord]
    stages: list[StageRecord]
    steps: dict[str, list[StepRecord]]

    def told(self) -> list[ToldStep]:
        """Every step with the worker that recorded it."""
        told = []
        for stage in self.stages:
            for record in self.steps.get(stage.id, []):
                is_old = record.id in self.before
                told.append(
                    ToldStep(
                        stage_id=stage.stage_id,
                        record=record,
                        worker=self.first if is_old else self.second,
                        was_cut_off=not is_old and record.created_at <= self.killed_at,
                    )
                )
        return told

    def run_again(self) -> list[ToldStep]:
        """Steps that were recorded before the kill and changed after it; a durable engine has none."""
        return [step for step in self.told() if self.before.get(step.record.id, step.record) != step.record]
