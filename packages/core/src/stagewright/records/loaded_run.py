"""A run with all of its stages."""

from dataclasses import dataclass, replace

from stagewright.records.run import RunRecord
from stagewright.records.stage import StoredStage

__all__ = ["LoadedRun"]


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run and its stages, as of one moment.

    Attributes:
        run: The run.
        stages: Its stages, by execution group, then by stage number.
        last_sequence: The sequence of its last event; 0 where it has none.
    """

    run: RunRecord
    stages: tuple[StoredStage, ...]
    last_sequence: int = 0

    def stage(self, stage_id: str) -> StoredStage | None:
        """The stage of this id, or None."""
        return next((stage for stage in self.stages if stage.stage_id == stage_id), None)

    def changed(self, stage: StoredStage, *, events: int) -> "LoadedRun":
        """The same with this record in the place of the stage's, and so many events more."""
        stages = tuple(stage if one.id == stage.id else one for one in self.stages)
        return replace(self, stages=stages, last_sequence=self.last_sequence + events)
