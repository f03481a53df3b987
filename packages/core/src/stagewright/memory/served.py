"""Which runs and jobs a claimer serves."""

from stagewright.records import Serves

__all__ = ["is_served"]


def is_served(serves: Serves, workflow_id: str, version: str | None) -> bool:
    """Whether one of the pairs is that very version, or names the workflow of something without a version."""
    if serves is None:
        return True
    return any(pair.workflow_id == workflow_id and version in (None, pair.version) for pair in serves)
