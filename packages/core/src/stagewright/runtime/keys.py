"""The layout of keys in the blob store, such that a run or a stage can be cleared by its prefix."""

from urllib.parse import quote

__all__ = ["run_prefix", "stage_prefix", "storage_prefix"]


def run_prefix(workflow_id: str, run_id: str) -> str:
    """What the keys of a run's blobs start with; it ends with a slash."""
    return f"workflow-v2/{quote(workflow_id, safe='')}/{quote(run_id, safe='')}/"


def stage_prefix(workflow_id: str, run_id: str, stage_id: str) -> str:
    """What the keys of a stage's blobs start with; it ends with a slash."""
    return f"{run_prefix(workflow_id, run_id)}{quote(stage_id, safe='')}/"


def storage_prefix(workflow_id: str, run_id: str, stage_id: str) -> str:
    """What the keys that a body stores by `ctx.storage` start with; it ends with a slash."""
    return f"{stage_prefix(workflow_id, run_id, stage_id)}storage/"
