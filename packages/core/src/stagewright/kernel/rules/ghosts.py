"""Which delivered jobs must not run."""

from typing import Literal, TypeAlias

from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["GhostReason", "ghost_of"]

GhostReason: TypeAlias = Literal["orphan", "race", "version"]
"""`orphan`: nobody wants the outcome, discard the job. `race`: too early or no longer this worker's, deliver it
again. `version`: another build has to run it, hand it back."""


def ghost_of(run: RunRecord, live_version: str) -> GhostReason | None:
    """Why a job of this run must not run here, or None when it may."""
    if run.status in TERMINAL_RUN_STATUSES:
        return "orphan"
    if run.definition_version is not None and run.definition_version != live_version:
        return "version"
    return None if run.status is Status.RUNNING else "race"
