"""The name of a step in other systems."""

import hashlib
from typing import Final

__all__ = ["derive_external_key"]

_LENGTH: Final = 32


def derive_external_key(stage_record_id: str, step_id: str) -> str:
    """The same key for a step on every execution and in every process, for other systems to recognise repetitions by.

    Args:
        stage_record_id: The stage record, `ctx.stage_record_id`.
        step_id: The step's id within the stage.

    Returns:
        `wfe-` and 32 hexadecimal digits.
    """
    # No id holds a NUL, so no other pair of ids gives the same text.
    named = f"{stage_record_id}\x00{step_id}".encode(errors="surrogatepass")
    return f"wfe-{hashlib.sha256(named).hexdigest()[:_LENGTH]}"
