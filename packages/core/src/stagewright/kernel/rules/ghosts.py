"""Which delivered jobs must not run."""

from typing import Literal, TypeAlias

from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["GhostReason", "ghost_of"]

GhostReason: TypeAlias = Literal["orphan", "race", "version"]
"""`orphan`: nobody wants the outcome, discard the job. `race`: too early or no longer this worker's, deliver it
again. `version`: another build has to run it, hand it back."""


def ghost_of(run: RunRecord, live_version: str, *, same_structure: bool = True) -> GhostReason | None:
    """Why a job of this run must not run here, or None when it may.

    Args:
        run: The run.
        live_version: The version of its workflow that this build has.
        same_structure: Whether that version, if the run is pinned to it, has the structure here that is stored.
    """
    if run.status in TERMINAL_RUN_STATUSES:
        return "orphan"
    if run.definition_version is not None and not (run.definition_version == live_version and same_structure):
        return "version"
    return None if run.status is Status.RUNNING else "race"
