"""How keys are called, and in which queue a job waits."""

import re
from typing import Final

from stagewright.errors import InvalidSettingError
from stagewright.records import Serves

__all__ = ["DEFAULT_NAMESPACE", "prefix_of", "queue_of", "queues_of"]

DEFAULT_NAMESPACE: Final = "stagewright"
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def prefix_of(namespace: str) -> str:
    """What every key of a namespace begins with: the namespace as the hash tag.

    Raises:
        InvalidSettingError: If it is no name.
    """
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        problem = "must be 1 to 64 letters, digits, '_', '-' and '.', such as 'stagewright'"
        raise InvalidSettingError("namespace", namespace, problem)
    return f"{{{namespace}}}:"


def queue_of(workflow_id: str, version: str | None) -> str:
    """The queue of a workflow's jobs of one version, or of those without one."""
    name = f"{len(workflow_id)}:{workflow_id}"
    return name if version is None else f"{name}:{version}"


def queues_of(serves: Serves) -> list[str]:
    """The queues that somebody who serves these definitions may take jobs from."""
    names = dict[str, None]()
    for pair in serves or ():
        names[queue_of(pair.workflow_id, pair.version)] = None
        names[queue_of(pair.workflow_id, None)] = None
    return list(names)
