"""How many runs each version of a workflow has."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from stagewright.status import Status

__all__ = ["VersionCounts", "VersionSummary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCounts:
    """How many runs are pinned to one version of one workflow, as a store counts them.

    Attributes:
        workflow_id: The workflow.
        definition_version: The version; None for runs that are pinned to none.
        counts: How many runs are in each status that any is in.
        oldest_created_at: When the oldest of them was created, in UTC.
    """

    workflow_id: str
    definition_version: str | None
    counts: Mapping[Status, int]
    oldest_created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSummary:
    """The runs pinned to one version of one workflow.

    Attributes:
        workflow_id: The workflow.
        definition_version: The version; None for runs that are pinned to none.
        counts: How many runs are in each status that any is in.
        total: How many runs in all.
        active: How many are PENDING, RUNNING or SUSPENDED.
        drained: Whether none is active.
        served_here: Whether this process serves the version.
        oldest_created_at: When the oldest of them was created, in UTC.
    """

    workflow_id: str
    definition_version: str | None
    counts: Mapping[Status, int]
    total: int
    active: int
    drained: bool
    served_here: bool
    oldest_created_at: datetime
