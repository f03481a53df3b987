"""Structures of workflows as stores keep them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from stagewright.definitions import Workflow
from stagewright.errors import InvalidSettingError
from stagewright.json_values import Json
from stagewright.kernel import Kernel
from stagewright.kernel.context import KernelPorts
from stagewright.ports import DefinitionStore

__all__ = ["PinnedStructure", "checked_store", "last_group_of", "pinned_structure", "stages_of"]


@dataclass(frozen=True, slots=True)
class PinnedStructure:
    """The structure that is stored as a version.

    Attributes:
        version: The version.
        snapshot: The structure.
        hash: Its hash.
    """

    version: str
    snapshot: Mapping[str, Json]
    hash: str

    def is_reused_by(self, candidate: Workflow) -> bool:
        """Whether a candidate gives the name of this version to another structure, which no kernel accepts."""
        return candidate.definition_version == self.version and candidate.structure_hash != self.hash


def checked_store(store: object) -> None:
    """Refuse what is near a store and is none: a kernel, its ports, a URL.

    Raises:
        InvalidSettingError: If it is one of them.
    """
    if isinstance(store, Kernel | KernelPorts | str):
        raise InvalidSettingError("persistence", store, "must be a store, such as kernel.ports.persistence")


async def pinned_structure(
    store: DefinitionStore, workflow_id: str, version: str | None
) -> PinnedStructure | None:
    """The structure of a version; None if there is none to be had.

    A store may have it as an object, or as the text of one.
    """
    definition = None if version is None else await store.get_definition(workflow_id, version)
    if definition is None:
        return None
    snapshot = definition.snapshot
    if isinstance(snapshot, str):
        snapshot = cast(Json, json.loads(snapshot))
    if not isinstance(snapshot, dict):
        return None
    return PinnedStructure(definition.version, snapshot, definition.structure_hash)


def stages_of(
    snapshot: Mapping[str, Json],
) -> dict[str, dict[str, Any]]:  # Any: JSON of the engine's own form
    """The stages of a structure, by id."""
    stages = cast("list[dict[str, Any]]", snapshot.get("stages") or [])
    return {stage["id"]: stage for stage in stages}


def last_group_of(snapshot: Mapping[str, Json]) -> int:
    """The number of the last group of a structure."""
    return max((stage.get("executionGroup", 0) for stage in stages_of(snapshot).values()), default=0)
