"""What logs of model calls share: they take calls at once, from any thread, and write them later, some at a time."""

import asyncio
import copy
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from stagewright.errors import (
    InvalidAICallError,
    OutcomeUnknownError,
    TransientError,
    ValueNotSerializableError,
)
from stagewright.json_values import Json, require_json, text_problem
from stagewright.records import AICall
from stagewright.system import TimeSortableIds

__all__ = ["AICallWriter", "NewAICall", "require_batch_id", "storable"]

_log: Final = logging.getLogger("stagewright.ai_calls")
_TRIES: Final = 3
_LONGEST_BATCH_ID: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAICall:
    """A call that is about to be written.

    Attributes:
        id: Its own; a call that may have been written already is recognised by it.
        call: The call; all of it can be stored.
        created_at: When it was logged, in UTC.
    """

    id: str
    call: AICall
    created_at: datetime


class AICallWriter:
    """Calls that wait to be written, and their writing; for the `log_call` and the `drain` of an `AICallLogger`.

    Args:
        write: Writes some calls in their order, all or none of them; one whose id is written already is skipped.
        now: The time, in UTC.
    """

    def __init__(
        self,
        write: Callable[[Sequence[NewAICall]], Awaitable[object]],
        now: Callable[[], datetime],
    ) -> None:
        self._write = write
        self._now = now
        self._ids = TimeSortableIds()
        self._waiting: list[NewAICall] = []
        self._guard = threading.Lock()
        # By event loop: a task belongs to one, and bodies may run on several.
        self._writing: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    def new(self, call: AICall) -> NewAICall:
        """A call as it is written."""
        return NewAICall(id=self._ids.new_id(), call=storable(call), created_at=self._now())

    def add(self, call: AICall) -> None:
        """Take a call; it is written soon where an event loop runs in this thread, else at the next `drain`."""
        new = self.new(call)
        with self._guard:
            self._waiting.append(new)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._write_on(loop)

    async def drain(self) -> None:
        """Write what waits, and wait for what this event loop is writing; whoever stops waiting stops no write."""
        loop = asyncio.get_running_loop()
        while self._waiting or loop in self._writing:
            await asyncio.wait({self._write_on(loop)})

    def _write_on(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None]":
        task = self._writing.get(loop)
        if task is None:
            task = self._writing[loop] = loop.create_task(self._write_waiting(loop))
        return task

    async def _write_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while calls := self._take():
                await self._write_or_report(calls)
        finally:
            del self._writing[loop]

    def _take(self) -> list[NewAICall]:
        with self._guard:
            taken, self._waiting = self._waiting, []
        return taken

    async def _write_or_report(self, calls: list[NewAICall]) -> None:
        try:
            await self._write_all(calls)
        except Exception as error:  # whatever a store may raise: no caller waits for this
            _report(calls, error)
        except BaseException:
            # Cancelled: whoever drains next writes them.
            with self._guard:
                self._waiting = calls + self._waiting
            raise

    async def _write_all(self, calls: Sequence[NewAICall]) -> None:
        try:
            await self._write_patiently(calls)
        except (TransientError, OutcomeUnknownError):
            raise
        except (
            Exception
        ):  # whatever a store may raise: one of them may be too much for it, such as a prompt of 20 MB
            if len(calls) == 1:
                raise
            for new in calls:
                await self._write_or_report([new])

    async def _write_patiently(self, calls: Sequence[NewAICall]) -> None:
        for _ in range(_TRIES - 1):
            try:
                await self._write(calls)
            except (TransientError, OutcomeUnknownError) as error:
                _log.info("model calls could not be logged yet, and are tried again: %s", error)
            else:
                return
        await self._write(calls)


def storable(call: AICall) -> AICall:
    """The call with everything in it that no store takes replaced, so that its log keeps the rest."""
    prompt, response = _storable_text(call.prompt), _storable_text(call.response)
    metadata = _storable_metadata(call.metadata)
    return replace(call, prompt=prompt, response=response, metadata=metadata)


def require_batch_id(batch_id: str) -> None:
    """Refuse what `AICallLogger.log_batch_results` says is no batch's id.

    Raises:
        InvalidAICallError: If it is empty, too long or can't be stored.
    """
    problem = text_problem(batch_id)
    if not batch_id:
        problem = "it is empty"
    elif len(batch_id) > _LONGEST_BATCH_ID:
        problem = f"it has {len(batch_id)} characters, and {_LONGEST_BATCH_ID} is the most"
    if problem is not None:
        raise InvalidAICallError("batch_id", batch_id, problem)


def _storable_text(text: str) -> str:
    if text_problem(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\x00", "\ufffd")


def _storable_metadata(metadata: Mapping[str, Json]) -> Mapping[str, Json]:
    given = dict(metadata)
    try:
        require_json(given, what="the metadata of a model call")
    except ValueNotSerializableError as error:
        _log.warning("the metadata of a model call is not kept: %s", error)
        return {"metadata_not_kept": str(error)}
    return copy.deepcopy(given)


def _report(calls: Sequence[NewAICall], error: BaseException) -> None:
    for new in calls:
        call = new.call
        _log.error(
            "a model call is not logged: topic %s, type %s, model %s (%s), %s tokens in, %s out, cost %s, request %s",
            *(call.topic, call.call_type, call.model_key, call.model_id),
            *(call.input_tokens, call.output_tokens, call.cost, call.request_id),
            exc_info=error,
        )
