"""Which ids a stage and a workflow may have."""

import re
from typing import Final

__all__ = ["stage_id_problem", "workflow_id_problem"]

_STAGE_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}", re.ASCII)
_WORKFLOW_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}", re.ASCII)


def stage_id_problem(value: object) -> str | None:
    """Say why a value is no stage id, or return None when it is one."""
    if isinstance(value, str) and _STAGE_ID.fullmatch(value):
        return None
    return (
        f"the stage id {value!r} is not valid: use 1 to 100 lower-case letters, digits, '_' and '-', "
        "and begin with a letter or a digit"
    )


def workflow_id_problem(value: object) -> str | None:
    """Say why a value is no workflow id, or return None when it is one."""
    if isinstance(value, str) and _WORKFLOW_ID.fullmatch(value):
        return None
    return (
        f"the workflow id {value!r} is not valid: use 1 to 100 letters, digits, '.', '_', ':' and '-', "
        "and begin with a letter or a digit"
    )
