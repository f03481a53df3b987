"""Jobs in Redis or Valkey."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any, Final, Self

from stagewright.duration import Duration, add_duration
from stagewright.errors import RecordNotFoundError
from stagewright.ports import Persistence
from stagewright.records import (
    Acknowledgement,
    DequeuedJob,
    Fairness,
    Fence,
    JobRecord,
    NewJob,
    Serves,
    group_of,
)
from stagewright.status import Status
from stagewright.system import SystemClock
from stagewright_transport_redis.connecting import RedisClients, clients_of
from stagewright_transport_redis.encoding import (
    claim_of,
    fence_values,
    fields_of,
    micros,
    new_job_values,
    record_of,
    text_of,
)
from stagewright_transport_redis.errors import RedisRefusedError, RedisUnavailableError
from stagewright_transport_redis.job_leases import RedisJobLeases
from stagewright_transport_redis.namespace import Namespace
from stagewright_transport_redis.naming import DEFAULT_NAMESPACE, queues_of
from stagewright_transport_redis.redis_url import RedisOptions, address_of, checked_keep

__all__ = ["RedisJobTransport"]

_MICROSECOND: Final = timedelta(microseconds=1)
_DEFAULTS: Final = RedisOptions()


class RedisJobTransport(RedisJobLeases):
    """A `JobTransport` in Redis or Valkey; a `WorkNotifier`, `GroupsJobs`, `OpensHeartbeats` and `MayLoseJobs`.

    Every change is one script, done as a whole or not at all, on the server's own clock. It is of one event loop, and
    never a part of a transaction of the persistence.
    """

    @classmethod
    def from_url(
        cls, url: str, *, namespace: str | None = None, fairness: Fairness | None = None
    ) -> "RedisJobTransport":
        """The jobs at a URL; it connects when it is used, and has to be closed.

        Args:
            url: `redis://`, `rediss://`, `valkey://`, `valkeys://` or `unix://`, the first four also with
                `+sentinel` or `+cluster`; its parameters are in the package's README.
            namespace: What its keys begin with; the URL's own, or `stagewright`, unless given.
            fairness: A cap on the RUNNING jobs of one group; none unless given.

        Raises:
            InvalidSettingError: If the URL or the namespace can't be used.
        """
        address = address_of(url, namespace=namespace)
        options = address.options
        jobs = Namespace(clients_of(address), options.namespace, address.shown, options.keep_ended)
        return cls(jobs, fairness)

    @classmethod
    def from_client(
        cls,
        client: Any,  # Any: redis.asyncio's Redis and RedisCluster share no useful type
        *,
        connect_listener: Callable[[], Any] | None = None,
        connect_heartbeats: Callable[[], Any] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        keep_ended: Duration = _DEFAULTS.keep_ended,
        fairness: Fairness | None = None,
    ) -> "RedisJobTransport":
        """The jobs at an asynchronous client of your own, which stays open when the transport is closed.

        Args:
            client: A `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`, with a time-out for its sockets.
            connect_listener: Gives a `redis.asyncio.Redis` of one server, which the transport closes; needed for a
                cluster. The client's own pool lends a connection for listening unless it is given.
            connect_heartbeats: Gives a synchronous client of the same server, which the transport closes. Without it
                leases are renewed on the event loop.
            namespace: What its keys begin with.
            keep_ended: How long a job that has ended is kept, ten minutes at least.
            fairness: A cap on the RUNNING jobs of one group; none unless given.

        Raises:
            InvalidSettingError: If the namespace can't be used, or ended jobs would be forgotten too soon.
        """

        async def listen() -> Any:
            return _Borrowed(client) if connect_listener is None else connect_listener()

        async def leave_open() -> None:
            return None

        clients = RedisClients(client, listen, connect_heartbeats, leave_open)
        place = f"the given {type(client).__name__}"
        return cls(Namespace(clients, namespace, place, checked_keep(keep_ended)), fairness)

    async def close(self) -> None:
        """Stop listening, and close the connections; jobs and leases stay as they are."""
        await self._namespace.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        """Make jobs claimable, each in the place of the one that its run and stage had."""
        if jobs:
            await self._scripts.run("enqueue", token_hex(16), self._is_fair, *self._new_jobs(jobs))
        return [job.id for job in jobs]

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        """Wake SUSPENDED jobs, enqueue missing and ended ones, and leave alone what is claimable or claimed."""
        if not jobs:
            return []
        answer = await self._scripts.run("resume", token_hex(16), self._is_fair, *self._new_jobs(jobs))
        return [record_of(fields_of(job)) for job in answer]

    def enlist(self, tx: Persistence) -> Self | None:
        """None: no transaction of a database reaches here."""
        return None

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        """Take up to `limit` jobs that are due and served; what a cancelled call has taken is handed back."""
        if limit < 1 or (serves is not None and not serves):
            return []
        taking = asyncio.create_task(self._take(worker_id, serves, limit))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._namespace.finish(self._hand_back(taking))
            raise

    async def _take(self, worker_id: str, serves: Serves, limit: int) -> list[DequeuedJob]:
        cap = "" if self._fairness is None else self._fairness.max_concurrent_per_group
        queues: tuple[str | int, ...] = (int(serves is not None), *queues_of(serves))
        taken, is_more = list[DequeuedJob](), True
        while is_more and len(taken) < limit:
            request, wanted = token_hex(16), limit - len(taken)
            try:
                answer = await self._scripts.run("dequeue", worker_id, wanted, request, cap, *queues)
            except (RedisUnavailableError, RedisRefusedError):
                if not taken:
                    raise
                break  # What there is already is the caller's; the next call meets the failure.
            claim = claim_of(answer)
            is_more = claim.is_more
            if claim.due_in is not None:
                self._namespace.work.tell_in(claim.due_in)
            taken += claim.jobs
        return taken

    async def _hand_back(self, taking: "asyncio.Task[list[DequeuedJob]]") -> None:
        for job in await taking:
            await self.defer(job.job_id, job.fence.started_at, "its claim was cancelled", job.fence)

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        """The job becomes COMPLETED."""
        return await self._settle(job_id, fence, Status.COMPLETED)

    async def suspend(
        self, job_id: str, next_poll_at: datetime, fence: Fence | None = None
    ) -> Acknowledgement:
        """The job becomes SUSPENDED and leaves its worker."""
        return await self._settle(job_id, fence, Status.SUSPENDED, due_at=micros(next_poll_at))

    async def fail(
        self,
        job_id: str,
        error: str,
        *,
        retry: bool,
        delay: timedelta | None = None,
        fence: Fence | None = None,
    ) -> Acknowledgement:
        """One more failure; the job becomes PENDING again with `retry`, else FAILED."""
        if not retry:
            return await self._settle(job_id, fence, Status.FAILED, error=error, failures=1)
        if delay is None:
            return await self._settle(job_id, fence, Status.PENDING, error=error, failures=1)
        # By the machine's clock, to refuse what the calendar doesn't have; the server adds it to its own.
        add_duration(SystemClock().now(), delay, field="delay")
        pause = delay // _MICROSECOND
        return await self._settle(job_id, fence, Status.PENDING, error=error, failures=1, delay=pause)

    async def defer(
        self, job_id: str, until: datetime, reason: str, fence: Fence | None = None
    ) -> Acknowledgement:
        """Hand the job back unexecuted, due at `until`; `reason` is kept as its last error."""
        due_at = micros(until)
        return await self._settle(job_id, fence, Status.PENDING, error=reason, interruptions=1, due_at=due_at)

    async def notify(self, topic: str) -> None:
        """Wake whoever waits on this namespace, here and in other processes."""
        await self._scripts.run("notify", topic)

    async def wait_for_work(self, timeout: timedelta) -> bool:
        """Wait for a notification that came since the last wait returned, or that may have gone unheard.

        The first call begins to listen, and ends once that has succeeded. It also ends when a job is due.
        """
        self._namespace.listener.start()
        return await self._inbox.wait(timeout)

    def is_listening(self) -> bool:
        """Whether the server is listened to at this moment."""
        return self._namespace.listener.is_healthy

    async def possible_losses(self) -> str | None:
        """A text as long as the server may have lost jobs: it was emptied, started anew or replaced; else None."""
        return text_of(await self._scripts.run("losses", "")) or None

    async def losses_replaced(self, losses: str) -> None:
        """What may have been lost then is there again."""
        await self._scripts.run("losses", losses)

    async def server(self) -> dict[str, str]:
        """What the server says of itself, as INFO does; asking needs a connection, so it shows whether there is one.

        Raises:
            RedisUnavailableError, RedisRefusedError: If there is none, or the server refuses.
        """
        said = text_of(await self._scripts.run("server"))
        return dict(line.split(":", 1) for line in said.splitlines() if ":" in line and line[0] != "#")

    def _new_jobs(self, jobs: Sequence[NewJob]) -> list[str | int]:
        return new_job_values(jobs, [group_of(job, self._fairness) for job in jobs])

    async def _settle(
        self,
        job_id: str,
        fence: Fence | None,
        status: Status,
        *,
        error: str | None = None,
        failures: int = 0,
        interruptions: int = 0,
        due_at: int | None = None,
        delay: int | None = None,
    ) -> Acknowledgement:
        more = list[str | int]()
        if (error, failures, interruptions, due_at, delay) != (None, 0, 0, None, None):
            more += (failures, interruptions)
            more += ("" if due_at is None else due_at, "" if delay is None else delay)
            more += () if error is None else (error,)
        answer = await self._scripts.run(
            "settle", job_id, *fence_values(fence), token_hex(16), self._is_fair, status.value, *more
        )
        match text_of(answer):
            case "missing":
                raise RecordNotFoundError("job", job_id)
            case "acknowledged":
                return "acknowledged"
            case _:
                return "superseded"


class _Borrowed:
    """A client that is somebody else's: its connection for listening goes back, and it stays open."""

    def __init__(self, client: Any) -> None:  # Any: as above
        self.pubsub = client.pubsub

    async def aclose(self) -> None:
        return None
