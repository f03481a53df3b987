"""Saying in one look what there is to do."""

from datetime import datetime
from typing import Protocol, runtime_checkable

from stagewright.records import WorkOutlook

__all__ = ["ForeseesWork"]


@runtime_checkable
class ForeseesWork(Protocol):
    """A persistence that can say in one look whether there is anything to do, so that an idle host asks little."""

    async def outlook(self, now: datetime) -> WorkOutlook:
        """What waits now, and when the next job or suspended stage is due; committed state, and nothing is changed.

        Args:
            now: The time to compare with.
        """
        ...
