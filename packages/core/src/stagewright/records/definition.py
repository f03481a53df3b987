"""A workflow's structure as it was when a run was pinned to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from stagewright.json_values import Json

__all__ = ["DefinitionRecord", "ServedDefinition", "Serves"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRecord:
    """A stored definition; (workflow id, version) is its key and the first writer's row stays.

    Attributes:
        workflow_id: The workflow.
        version: Its declared version, or the one derived from its structure.
        structure_hash: The hash of the snapshot, also when the version is declared.
        snapshot: The structure as a JSON document.
        created_at: When it was first registered, in UTC.
    """

    workflow_id: str
    version: str
    structure_hash: str
    snapshot: Json
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ServedDefinition:
    """A workflow and version that a process is able to run."""

    workflow_id: str
    version: str


Serves: TypeAlias = Sequence[ServedDefinition] | None
"""What a claimer serves: these pairs and nothing else; None is everything, an empty list is nothing.

A run or job with a version needs its very pair. One without a version needs a pair that names its workflow.
"""
