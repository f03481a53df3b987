"""A workflow's structure as one JSON document, and the hash that tells two structures apart."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from stagewright.definitions.json_schema import canonical_json
from stagewright.definitions.plan import ExecutionPlan
from stagewright.definitions.schema import Schema
from stagewright.definitions.stage import Stage
from stagewright.json_values import Json

__all__ = ["snapshot_of", "stage_ids_of", "structure_hash"]

_FORMAT: Final = 1


def snapshot_of(
    workflow_id: str, plan: ExecutionPlan, *, input_schema: Schema[Any], output_schema: Schema[Any]
) -> dict[str, Json]:
    """The structure of a workflow; names, descriptions, bodies and defaults are no part of it."""
    return {
        "format": _FORMAT,
        "workflowId": workflow_id,
        "inputSchema": _schema(input_schema),
        "outputSchema": _schema(output_schema),
        "stages": [
            _stage(stage, plan.stage_number(stage.id), number)
            for number, group in enumerate(plan.groups, start=1)
            for stage in group
        ],
    }


def stage_ids_of(snapshot: Json) -> tuple[str, ...]:
    """The ids of the stages in a snapshot, in their order."""
    stages = snapshot.get("stages") if isinstance(snapshot, dict) else None
    members = stages if isinstance(stages, list) else []
    ids = [stage.get("id") for stage in members if isinstance(stage, dict)]
    return tuple(stage_id for stage_id in ids if isinstance(stage_id, str))


def structure_hash(snapshot: Mapping[str, Json]) -> str:
    """The version that a snapshot stands for, `sha256-` and 32 hexadecimal digits."""
    return "sha256-" + hashlib.sha256(canonical_json(dict(snapshot)).encode()).hexdigest()[:32]


def _stage(stage: Stage[Any, Any, Any], number: int, group: int) -> Json:
    described: dict[str, Json] = {
        "id": stage.id,
        "stageNumber": number,
        "executionGroup": group,
        "inputSchema": _schema(stage.input_schema),
        "outputSchema": _schema(stage.output_schema),
        "configSchema": _schema(stage.config_schema),
    }
    if stage.dependencies:
        described["dependencies"] = [*sorted(stage.dependencies)]
    if stage.mode != "sync":
        described["mode"] = stage.mode
    return described


def _schema(schema: Schema[Any]) -> Json:
    return None if schema.takes_nothing else schema.json_schema()
