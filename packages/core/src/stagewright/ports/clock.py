"""Where the kernel gets the time from."""

from datetime import datetime
from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """The only source of time that the kernel knows."""

    def now(self) -> datetime:
        """The current time: aware, in UTC. It may stand still and it may be set back."""
        ...
