"""Calls of scripts that are made at the same time go to the server together."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

__all__ = ["CallSender", "Script"]

_MOST_UNDER_WAY: Final = 2
"""One pipeline is read or written here while the server works on the other; more of them would only be smaller."""

_MOST_TOGETHER: Final = 100


@dataclass(frozen=True, slots=True)
class Script:
    """A script as servers know it.

    Attributes:
        text: What is sent to a server that doesn't know it yet.
        digest: By which it is called otherwise.
    """

    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class _Call:
    script: Script
    values: Sequence[bytes | str]
    answer: "asyncio.Future[Any]"

    def settle(self, answer: Any) -> None:  # Any: whatever the script answers, or its error
        # Nobody waits any more for a call that was cancelled.
        if self.answer.done():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class CallSender:
    """Sends calls of scripts, each with one key; those that wait at the same moment are one pipeline.

    A call waits for nobody while fewer than two pipelines are under way, and then for one of them. Calls of one
    pipeline are carried out in the order in which they were made. Each caller gets the answer or the error of its own
    call, and the error of the connection if that was lost; who is cancelled takes back a call that is not sent yet,
    and no other one. Of a cluster, and of a client that isn't redis-py's own, every call is sent by itself.

    Args:
        client: An asynchronous client.
        key: The scripts' key.
    """

    def __init__(self, client: Any, key: str) -> None:  # Any: clients share no useful type
        self._client = client
        self._key = key
        self._is_pipelined = isinstance(client, Redis)
        self._waiting = list[_Call]()
        self._under_way = 0
        self._is_beginning = False
        self._tasks = set[asyncio.Task[None]]()
        self._known = set[str]()

    async def send(
        self, script: Script, values: Sequence[bytes | str]
    ) -> Any:  # Any: whatever the script answers
        """Call a script, and send its text if the server doesn't know it.

        Raises:
            redis.exceptions.RedisError, OSError: What the server answers, or befalls the connection.
        """
        if not self._is_pipelined:
            return await self._send_alone(script, values)
        call = _Call(script, values, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._begin()
        return await call.answer

    async def _send_alone(self, script: Script, values: Sequence[bytes | str]) -> Any:  # Any: as above
        try:
            return await self._client.evalsha(script.digest, 1, self._key, *values)
        except NoScriptError:
            # New, restarted or flushed; it knows the script from now on.
            return await self._client.eval(script.text, 1, self._key, *values)

    def _begin(self) -> None:
        if not self._waiting or self._is_beginning or self._under_way == _MOST_UNDER_WAY:
            return
        self._under_way += 1
        self._is_beginning = True
        # It begins with the next turn of the event loop, so what is called in this turn goes along.
        task = asyncio.create_task(self._send_waiting(), name="stagewright-redis-calls")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_waiting(self) -> None:
        self._is_beginning = False
        try:
            while self._waiting:
                calls = [call for call in self._waiting[:_MOST_TOGETHER] if not call.answer.done()]
                del self._waiting[:_MOST_TOGETHER]
                self._begin()
                if calls:
                    await self._send_together(calls)
        finally:
            # At once: a call that is made next has to know that nobody will look for it any more.
            self._under_way -= 1

    async def _send_together(self, calls: Sequence[_Call]) -> None:
        try:
            answers = await self._answers_to(calls)
            unknown = [call for call, answer in zip(calls, answers, strict=True) if _is_unknown(answer)]
            if unknown:
                # Restarted, replaced or flushed.
                self._known.clear()
                again = iter(await self._answers_to(unknown))
                answers = [next(again) if _is_unknown(answer) else answer for answer in answers]
        except Exception as error:  # every caller gets it, and knows what to do about it
            for call in calls:
                call.settle(error)
        except BaseException:
            for call in calls:
                call.answer.cancel()
            raise
        else:
            for call, answer in zip(calls, answers, strict=True):
                call.settle(answer)

    async def _answers_to(self, calls: Sequence[_Call]) -> list[Any]:  # Any: answers and errors
        pipeline: Any = self._client.pipeline(transaction=False)
        known = set(self._known)
        for call in calls:
            script = call.script
            if script.digest in known:
                pipeline.evalsha(script.digest, 1, self._key, *call.values)
            else:
                known.add(script.digest)
                pipeline.eval(script.text, 1, self._key, *call.values)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        # Not before: the other pipeline may reach the server first.
        self._known |= known
        return answers


def _is_unknown(answer: Any) -> bool:  # Any: as above
    return isinstance(answer, NoScriptError)
