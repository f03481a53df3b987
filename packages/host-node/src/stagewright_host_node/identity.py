"""What a worker is called: one name for one incarnation."""

import os
import socket
from datetime import UTC, datetime
from typing import Final

from stagewright.errors import InvalidSettingError

__all__ = ["incarnation_of"]

_LONGEST_LABEL: Final = 100
_LONGEST_HOST: Final = 100


def incarnation_of(label: str, started_at: datetime | None = None) -> str:
    """A worker's id: its label, its machine, its process and when it started, so that no two are the same.

    Args:
        label: What its operator calls it.
        started_at: When it started; now by default.

    Raises:
        InvalidSettingError: If the label is empty, long, or has characters that don't print.
    """
    if not isinstance(label, str) or not 0 < len(label) <= _LONGEST_LABEL or not label.isprintable():
        raise InvalidSettingError(
            "worker_id", label, f"must be a printable text of 1 to {_LONGEST_LABEL} characters"
        )
    moment = (started_at or datetime.now(UTC)).astimezone(UTC)
    machine = socket.gethostname()[:_LONGEST_HOST] or "unknown"
    return f"{label}@{machine}:{os.getpid()}:{moment:%Y%m%dT%H%M%S.%f}Z"
