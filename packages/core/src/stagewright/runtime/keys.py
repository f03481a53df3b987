"""The layout of keys in the blob store, such that a run or a stage can be cleared by its prefix."""

from functools import lru_cache, partial
from typing import Final
from urllib.parse import quote

__all__ = [
    "payloads_prefix",
    "purge_prefixes",
    "run_prefix",
    "stage_prefix",
    "steps_prefix",
    "storage_prefix",
]


_quoted: Final = lru_cache(maxsize=1_024)(partial(quote, safe=""))


def run_prefix(workflow_id: str, run_id: str) -> str:
    """What the keys of a run's blobs start with; it ends with a slash."""
    return f"workflow-v2/{_quoted(workflow_id)}/{_quoted(run_id)}/"


def payloads_prefix(workflow_id: str, run_id: str) -> str:
    """What the keys of a run's spilled job payloads start with; it ends with a slash.

    No stage has such an id, so that clearing a stage's blobs leaves the payload of its next job alone.
    """
    return f"{run_prefix(workflow_id, run_id)}_jobs/"


def stage_prefix(workflow_id: str, run_id: str, stage_id: str) -> str:
    """What the keys of a stage's blobs start with; it ends with a slash."""
    return f"{run_prefix(workflow_id, run_id)}{_quoted(stage_id)}/"


def steps_prefix(workflow_id: str, run_id: str, stage_id: str) -> str:
    """What the keys of a stage's spilled step results start with; it ends with a slash."""
    return f"{stage_prefix(workflow_id, run_id, stage_id)}steps/"


def storage_prefix(workflow_id: str, run_id: str, stage_id: str) -> str:
    """What the keys that a body stores by `ctx.storage` start with; it ends with a slash."""
    return f"{stage_prefix(workflow_id, run_id, stage_id)}storage/"


def purge_prefixes(workflow_id: str, run_id: str) -> tuple[str, ...]:
    """What the keys of all blobs of a run start with."""
    return (run_prefix(workflow_id, run_id),)
