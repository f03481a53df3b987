"""What the runs of each version come to."""

from collections.abc import Callable, Iterable

from stagewright.records import VersionCounts, VersionSummary
from stagewright.status import TERMINAL_RUN_STATUSES

__all__ = ["summarise_versions"]


def summarise_versions(
    counted: Iterable[VersionCounts], *, is_served: Callable[[str, str], bool]
) -> tuple[VersionSummary, ...]:
    """Summaries, the version with the newest first run first, equals by version and workflow; no version comes last.

    Args:
        counted: How many runs there are of each workflow and version.
        is_served: Whether this process is able to run a version of a workflow. Runs without one are served by any.
    """
    summaries = [_summary(one, is_served) for one in counted]
    summaries.sort(key=lambda one: (one.definition_version or "", one.workflow_id))
    summaries.sort(key=lambda one: one.oldest_created_at, reverse=True)
    summaries.sort(key=lambda one: one.definition_version is None)
    return tuple(summaries)


def _summary(counted: VersionCounts, is_served: Callable[[str, str], bool]) -> VersionSummary:
    version = counted.definition_version
    active = sum(count for status, count in counted.counts.items() if status not in TERMINAL_RUN_STATUSES)
    return VersionSummary(
        workflow_id=counted.workflow_id,
        definition_version=version,
        counts=counted.counts,
        total=sum(counted.counts.values()),
        active=active,
        drained=active == 0,
        served_here=version is None or is_served(counted.workflow_id, version),
        oldest_created_at=counted.oldest_created_at,
    )
