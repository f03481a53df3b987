"""A run with all of its stages."""

from dataclasses import dataclass

from stagewright.records.run import RunRecord
from stagewright.records.stage import StoredStage

__all__ = ["LoadedRun"]


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run and its stages, as of one moment.

    Attributes:
        run: The run.
        stages: Its stages, by execution group, then by stage number.
    """

    run: RunRecord
    stages: tuple[StoredStage, ...]
