"""Holding a candidate against the structures of the versions that have runs."""

from collections.abc import Collection, Mapping
from typing import Final

from stagewright.definitions import StructureDrift, Workflow, drift_between
from stagewright.errors import InvalidSettingError
from stagewright.hosting.registries import Workflows, registry_of
from stagewright.json_values import Json
from stagewright.ports import DefinitionStore, WorkflowRegistry
from stagewright.records import VersionCounts
from stagewright.status import Status
from stagewright.testing.shadow.report import ShadowedVersion, VersionShadowReport
from stagewright.testing.shadow.snapshots import checked_store, last_group_of, pinned_structure, stages_of

__all__ = ["ACTIVE", "shadow_versions"]

ACTIVE: Final = (Status.PENDING, Status.RUNNING, Status.SUSPENDED)


async def shadow_versions(
    persistence: DefinitionStore, candidates: Workflows, *, statuses: Collection[Status | str] = ACTIVE
) -> VersionShadowReport:
    """Compare a candidate build with the structure of every version that has runs; only reads.

    It costs one query and one for each version, however many runs there are, and is the stricter of the two looks: a
    version may differ in a stage that all of its runs have behind them. `shadow_runs` looks at each run.

    Args:
        persistence: The store, such as `kernel.ports.persistence`; a login that may only read will do.
        candidates: The workflows of the candidate build.
        statuses: Which runs count; those that haven't ended unless said.

    Raises:
        DefinitionError: If `candidates` are none.
        InvalidSettingError: If `persistence` is no store, or `statuses` is one text instead of several.
        ValueError: If a status is none.
    """
    registry = registry_of(candidates, subject="shadow_versions")
    checked_store(persistence)
    if isinstance(statuses, str):
        raise InvalidSettingError("statuses", statuses, "must be a list of statuses, also of a single one")
    wanted = {Status(status) for status in statuses}
    counted = [
        counts
        for counts in await persistence.count_runs_by_definition_version()
        if _run_count(counts, wanted)
    ]
    counted.sort(key=lambda one: one.definition_version or "")
    counted.sort(key=lambda one: one.oldest_created_at, reverse=True)
    counted.sort(key=lambda one: (one.workflow_id, one.definition_version is None))
    versions = tuple([await _shadowed(persistence, registry, counts, wanted) for counts in counted])
    incompatible = sum(not version.compatible for version in versions)
    return VersionShadowReport(supported=True, versions=versions, incompatible=incompatible)


async def _shadowed(
    store: DefinitionStore,
    candidates: WorkflowRegistry[Workflow],
    counts: VersionCounts,
    wanted: Collection[Status],
) -> ShadowedVersion:
    workflow_id, version = counts.workflow_id, counts.definition_version
    candidate = candidates.get(workflow_id)
    drifts: tuple[StructureDrift, ...] = ()
    compatible, is_reused = True, False
    if candidate is None:
        drifts, compatible = (_missing(workflow_id),), False
    elif (pinned := await pinned_structure(store, workflow_id, version)) is not None:
        offered = candidate.snapshot()
        drifts = drift_between(pinned.snapshot, offered)
        is_reused = pinned.is_reused_by(candidate)
        harmless = all(_is_harmless(drift, pinned.snapshot, offered) for drift in drifts)
        compatible = harmless and not is_reused
    return ShadowedVersion(
        workflow_id=workflow_id,
        version=version,
        run_count=_run_count(counts, wanted),
        drifts=drifts,
        compatible=compatible,
        is_reused=is_reused,
    )


def _is_harmless(drift: StructureDrift, pinned: Mapping[str, Json], offered: Mapping[str, Json]) -> bool:
    """Whether no run of the pinned structure can meet a difference."""
    if drift.code == "WORKFLOW_SCHEMA_CHANGED":
        # What a workflow gives is what its last group gives; the input is read by bodies.
        return pinned.get("inputSchema") == offered.get("inputSchema")
    if drift.code != "STAGE_ADDED" or drift.stage_id is None:
        return False
    added = stages_of(offered)[drift.stage_id]
    return bool(added["executionGroup"] > last_group_of(pinned))


def _missing(workflow_id: str) -> StructureDrift:
    return StructureDrift(
        code="WORKFLOW_MISSING",
        stage_id=None,
        message=f"the candidate has no workflow {workflow_id!r}",
        before=workflow_id,
        after=None,
    )


def _run_count(counts: VersionCounts, wanted: Collection[Status]) -> int:
    return sum(count for status, count in counts.counts.items() if status in wanted)
