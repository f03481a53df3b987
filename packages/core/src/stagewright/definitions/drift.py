"""What differs between two snapshots of one workflow, in words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from stagewright.json_values import Json

__all__ = ["DriftCode", "StructureDrift", "drift_between"]

DriftCode: TypeAlias = Literal[
    "WORKFLOW_MISSING",
    "WORKFLOW_SCHEMA_CHANGED",
    "STAGE_REMOVED",
    "STAGE_ADDED",
    "EXECUTION_GROUP_CHANGED",
    "STAGE_ORDER_CHANGED",
    "DEPENDENCIES_CHANGED",
    "STAGE_MODE_CHANGED",
    "STAGE_SCHEMA_CHANGED",
]

_Stage: TypeAlias = Mapping[str, Json]
_SCHEMAS: Final = (("input", "inputSchema"), ("output", "outputSchema"), ("config", "configSchema"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureDrift:
    """One difference between a pinned structure and a candidate.

    Attributes:
        code: What kind of difference.
        stage_id: The stage it is about; None for the workflow itself.
        message: The difference in words.
        before: What the pinned structure says.
        after: What the candidate says.
    """

    code: DriftCode
    stage_id: str | None
    message: str
    before: Json
    after: Json

    def __str__(self) -> str:
        return self.message


def drift_between(pinned: Mapping[str, Json], candidate: Mapping[str, Json]) -> tuple[StructureDrift, ...]:
    """Every difference between two snapshots.

    Args:
        pinned: The snapshot that a run is pinned to.
        candidate: The snapshot of another build.

    Returns:
        The workflow's own differences, then those of each pinned stage in order, then added stages; nothing when
        the structures are the same.
    """
    before, after = _stages(pinned), _stages(candidate)
    found = [
        StructureDrift(
            code="WORKFLOW_SCHEMA_CHANGED",
            stage_id=None,
            message=f"the workflow's {role} schema changed",
            before=pinned.get(key),
            after=candidate.get(key),
        )
        for role, key in _SCHEMAS[:2]
        if pinned.get(key) != candidate.get(key)
    ]
    for stage_id, stage in before.items():
        other = after.get(stage_id)
        if other is None:
            found.append(_drift("STAGE_REMOVED", stage_id, "was removed", stage_id, None))
        else:
            found.extend(_stage_drift(stage_id, stage, other))
    found.extend(
        _drift("STAGE_ADDED", stage_id, "was added", None, stage_id)
        for stage_id in after
        if stage_id not in before
    )
    return tuple(found)


def _stages(snapshot: Mapping[str, Json]) -> dict[str, _Stage]:
    stages = cast("list[_Stage]", snapshot.get("stages") or [])
    return {str(stage["id"]): stage for stage in stages}


def _stage_drift(stage_id: str, before: _Stage, after: _Stage) -> list[StructureDrift]:
    compared: list[tuple[DriftCode, str, Callable[[_Stage], Json]]] = [
        ("EXECUTION_GROUP_CHANGED", "moved to another group", lambda stage: stage.get("executionGroup")),
        ("STAGE_ORDER_CHANGED", "moved to another place", lambda stage: stage.get("stageNumber")),
        ("DEPENDENCIES_CHANGED", "has other dependencies", lambda stage: stage.get("dependencies", [])),
        ("STAGE_MODE_CHANGED", "has another mode", lambda stage: stage.get("mode", "sync")),
    ]
    found = [
        _drift(code, stage_id, words, part(before), part(after))
        for code, words, part in compared
        if part(before) != part(after)
    ]
    found.extend(
        _drift(
            "STAGE_SCHEMA_CHANGED", stage_id, f"has another {role} schema", before.get(key), after.get(key)
        )
        for role, key in _SCHEMAS
        if before.get(key) != after.get(key)
    )
    return found


def _drift(code: DriftCode, stage_id: str, words: str, before: Json, after: Json) -> StructureDrift:
    return StructureDrift(
        code=code, stage_id=stage_id, message=f"stage {stage_id!r} {words}", before=before, after=after
    )
