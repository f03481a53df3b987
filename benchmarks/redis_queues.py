"""Job queues on Redis, seen as the few calls that a worker makes."""

import json
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol, Self

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from stagewright.records import DequeuedJob, JobQuery, NewJob
from stagewright.status import Status
from stagewright_transport_redis import RedisJobTransport

__all__ = ["JobQueue", "StagewrightJobs", "StreamJobs", "WrongJobsError"]


class WrongJobsError(Exception):
    """A queue did other work than it should have; what it took is no measure of anything."""


class JobQueue(Protocol):
    """A queue of jobs with a number each, of one process."""

    async def put(self, number: int) -> None:
        """Enqueue one job."""
        ...

    async def take(self, limit: int, wait: float = 0) -> Sequence[tuple[Any, int]]:
        """Take up to `limit` jobs, each with its number; where there is none, wait for so many seconds first."""
        ...

    async def end(self, job: Any) -> None:
        """Acknowledge one job for good."""
        ...

    async def left(self) -> int:
        """How many jobs are not ended, up to 100."""
        ...

    async def close(self) -> None: ...


class StagewrightJobs:
    """Stagewright's transport, on its own."""

    def __init__(self, url: str) -> None:
        self._transport = RedisJobTransport.from_url(url, namespace="bench")

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(url)

    async def put(self, number: int) -> None:
        job = NewJob(
            id=uuid.uuid4().hex,
            run_id=uuid.uuid4().hex,
            workflow_id="bench",
            stage_id="only",
            payload={"number": number},
        )
        await self._transport.enqueue_parallel([job])

    async def take(self, limit: int, wait: float = 0) -> Sequence[tuple[DequeuedJob, int]]:
        jobs = await self._transport.dequeue(worker_id="bench", limit=limit)
        if not jobs and wait:
            await self._transport.wait_for_work(timedelta(seconds=wait))
            jobs = await self._transport.dequeue(worker_id="bench", limit=limit)
        return [(job, _number(job.payload)) for job in jobs]

    async def end(self, job: DequeuedJob) -> None:
        answer = await self._transport.complete(job.job_id, job.fence)
        if answer != "acknowledged":
            raise WrongJobsError(f"a job was taken, and its end is {answer}")

    async def left(self) -> int:
        unended = JobQuery(statuses=[Status.PENDING, Status.RUNNING])
        return len((await self._transport.list_jobs(unended, limit=100)).items)

    async def close(self) -> None:
        await self._transport.close()


class StreamJobs:
    """A stream with a group of consumers, by redis-py alone: no priorities, no retries, no record of what ended."""

    def __init__(self, client: "Redis") -> None:
        self._client = client

    @classmethod
    async def open(cls, url: str) -> Self:
        client = Redis.from_url(url)
        try:
            await client.xgroup_create("bench", "workers", id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        return cls(client)

    async def put(self, number: int) -> None:
        job: dict[Any, Any] = {
            "id": uuid.uuid4().hex,
            "run": uuid.uuid4().hex,
            "payload": json.dumps({"number": number}),
        }
        await self._client.xadd("bench", job)

    async def take(self, limit: int, wait: float = 0) -> Sequence[tuple[bytes, int]]:
        block = int(wait * 1_000) or None
        found: Any = await self._client.xreadgroup(
            "workers", "bench", {"bench": ">"}, count=limit, block=block
        )
        if not found:
            return []
        # By RESP2 a list of pairs, by RESP3 a mapping to lists of lists.
        entries = found[0][1] if isinstance(found, list) else found[b"bench"][0]
        return [(entry, _number(json.loads(fields[b"payload"]))) for entry, fields in entries]

    async def end(self, job: bytes) -> None:
        answer = await self._client.xack("bench", "workers", job)
        if answer != 1:
            raise WrongJobsError("a job was taken, and wasn't there to be ended")

    async def left(self) -> int:
        pending: Any = await self._client.xpending("bench", "workers")
        (group,) = await self._client.xinfo_groups("bench")
        return int(pending["pending"]) + int(group["lag"])

    async def close(self) -> None:
        await self._client.aclose()


def _number(payload: Any) -> int:
    return int(payload["number"])
