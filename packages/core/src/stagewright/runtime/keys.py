"""The layout of keys in the blob store, such that a run or a stage can be cleared by its prefix."""

import re
from functools import lru_cache, partial
from typing import Final
from urllib.parse import quote, unquote

__all__ = [
    "ALL_RUNS_PREFIX",
    "payloads_prefix",
    "purge_prefixes",
    "run_of_key",
    "run_prefix",
    "stage_prefix",
    "steps_prefix",
    "storage_prefix",
]

ALL_RUNS_PREFIX: Final = "workflow-v2/"
"""What the keys of all blobs that belong to runs start with."""

_OF_A_RUN: Final = re.compile(
    rf"{ALL_RUNS_PREFIX}(?P<workflow>[^/]+)/(?P<run>[^/]+)/(?:_jobs|[a-z0-9][a-z0-9_-]{{0,99}})/.+", re.ASCII
)

_quoted: Final = lru_cache(maxsize=1_024)(partial(quote, safe=""))


def run_prefix(workflow_id: str, run_id: str) -> str:
    """What the keys of a run's blobs start with; it ends with a slash."""
    return f"{ALL_RUNS_PREFIX}{_quoted(workflow_id)}/{_quoted(run_id)}/"


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


def run_of_key(key: str) -> tuple[str, str] | None:
    """The ids of the workflow and the run that a blob belongs to; None for a key that is none of a run's blob."""
    found = _OF_A_RUN.fullmatch(key)
    if found is None:
        return None
    workflow_id, run_id = unquote(found["workflow"]), unquote(found["run"])
    # Somebody else's key may look nearly the same; the engine writes ids in one way.
    return (workflow_id, run_id) if key.startswith(run_prefix(workflow_id, run_id)) else None
