"""The event sink of a simulation: it notes what reaches it, and has its bad times."""

import asyncio
from typing import Final

from stagewright.events import Event
from stagewright_simulation.database import Reach
from stagewright_simulation.history import Delivery, History
from stagewright_simulation.windows import Windows

__all__ = ["SimSink"]

_REFUSALS: Final = 3


class SimSink:
    """An `EventSink` with a small budget of refusals."""

    max_retries = _REFUSALS

    def __init__(self, history: History, windows: Windows, reach: Reach, committed: dict[str, int]) -> None:
        self._history = history
        self._windows = windows
        self._reach = reach
        self._committed = committed

    async def emit(self, event: Event) -> None:
        """Accept an event, unless it is a bad time."""
        await self._reach("sink", "sink.emit")
        pause = self._windows.amount("sink-crawls")
        if pause:
            await asyncio.sleep(pause)
        refuses = self._windows.is_open("sink-refuses")
        self._history.deliveries.append(
            Delivery(
                event_id=event.event_id or "",
                run_id=event.run_id,
                sequence=event.sequence or 0,
                is_accepted=not refuses,
                is_committed=(event.event_id or "") in self._committed,
            )
        )
        if refuses:
            raise ConnectionError("the sink refuses")
        await self._reach("sink", "sink.emitted")
        if self._windows.is_open("sink-forgets"):
            raise ConnectionError("the sink has it, and its answer is lost")
