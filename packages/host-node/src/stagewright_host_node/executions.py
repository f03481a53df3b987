"""The slots of a host: which jobs it executes at this moment."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Final

from stagewright.commands import ExecuteJobResult
from stagewright.errors import TransientError
from stagewright.hosting.job_execution import JobExecution
from stagewright.hosting.job_runner import hand_back
from stagewright.hosting.settings import HostSettings
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob
from stagewright.runtime.failure import describe_exception
from stagewright_host_node.backoff import BackOff

__all__ = ["Executions", "is_last_chance"]

_log: Final = logging.getLogger("stagewright.host")


def is_last_chance(job: DequeuedJob) -> bool:
    """Whether a job that has lost workers before fails with the next one."""
    return 0 < job.worker_losses == job.max_worker_losses - 1


class Executions:
    """Executes jobs, each in a task of its own, up to `concurrency` at a time.

    Args:
        kernel: The kernel.
        settings: The host's settings.
        ended: Called on the event loop when an execution has ended, with its result if there is one.
        successor: Says whether this host takes what follows an execution, which its slot then goes on with.

    Attributes:
        by_outcome: How many executions ended how; `unsettled` are those whose outcome could not be recorded.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: HostSettings,
        ended: Callable[[ExecuteJobResult | None], None],
        *,
        successor: Callable[[JobExecution], str | None],
    ) -> None:
        self.by_outcome: dict[str, int] = dict.fromkeys(
            ("completed", "suspended", "failed", "retried", "discarded", "unsettled"), 0
        )
        self._kernel = kernel
        self._settings = settings
        self._ended = ended
        self._successor = successor
        # The heartbeat thread reads what the event loop writes.
        self._lock = threading.Lock()
        self._tasks: dict[JobExecution, asyncio.Task[ExecuteJobResult | None]] = {}
        self._loner: JobExecution | None = None
        self._stopped = False
        self._returned: set[asyncio.Task[bool]] = set()
        self._unrecorded = BackOff()

    @property
    def current(self) -> tuple[JobExecution, ...]:
        """Those that have not ended; it may be asked from any thread."""
        with self._lock:
            return tuple(self._tasks)

    @property
    def free(self) -> int:
        """How many more may be started; none while a job wants to be alone."""
        if self._loner is not None:
            return 0
        return max(0, self._settings.concurrency - len(self._tasks))

    @property
    def are_reserved(self) -> bool:
        """Whether a slot that ends an execution must not begin another: a job wants to be alone, or all are to end."""
        return self._stopped or self._loner is not None

    def start(self, job: DequeuedJob, *, claimed_at: float | None = None) -> None:
        """Begin to execute a job.

        Args:
            job: The job.
            claimed_at: As of `JobExecution`.
        """
        # The claim that follows each execution takes what that one made, or tells others of it.
        execution = JobExecution(
            self._kernel,
            job,
            abort_grace=self._settings.abort_grace,
            wakes_hosts=False,
            successor=self._successor,
            claimed_at=claimed_at,
        )
        if is_last_chance(job):
            self._loner = execution
        task = asyncio.create_task(self._execute(execution), name=f"stagewright {execution}")
        with self._lock:
            self._tasks[execution] = task
        task.add_done_callback(lambda ended: self._end(execution, ended))

    def stop(self) -> None:
        """Go on with nothing that follows."""
        self._stopped = True

    async def wait_until_idle(self, timeout: float) -> bool:
        """Whether all executions ended in time."""
        tasks = self._pending()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)
        return not self._pending()

    async def hand_back_rest(self, patience: float) -> int:
        """Cut off what still runs and hand the jobs back; say how many there were."""
        left = self.current
        for execution in left:
            execution.tell("shutdown")
        tasks = self._pending()
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=patience)
            for task in pending:
                task.cancel()
            if pending:
                _log.warning("%d jobs could not be handed back in time; their leases end", len(pending))
        return len(left)

    def _pending(self) -> Collection[asyncio.Task[Any]]:  # Any: what they give is of no account
        every: list[asyncio.Task[Any]] = [*self._tasks.values(), *self._returned]
        return [task for task in every if not task.done()]

    async def _execute(self, execution: JobExecution) -> ExecuteJobResult | None:
        try:
            if execution is self._loner and not await self._is_its_turn(execution):
                return await execution.turn_down()
            result = await execution.run()
        except TransientError as error:
            _log.warning("the outcome of %s could not be recorded: %s", execution, describe_exception(error))
            # A body whose outcome can't be recorded must not be repeated as fast as it fails.
            await self._hand_back(execution, pause=timedelta(seconds=self._unrecorded.failed()))
        except Exception:
            # Nothing is known about the outcome, or the executor failed: the lease brings the job to somebody else.
            _log.exception("%s could not be executed; its lease brings it to another worker", execution)
        else:
            self._unrecorded.succeeded()
            return result
        return None

    async def _is_its_turn(self, execution: JobExecution) -> bool:
        """Wait until nothing else runs, for a while; False if the job was told to stop meanwhile.

        The bodies of a process die together, and each loses a worker. The one that ended it must not take the others
        to their limit: whoever is one loss away from it runs by itself.
        """
        _log.warning(
            "%s has lost %d workers of at most %d; it is executed alone",
            execution,
            execution.job.worker_losses,
            execution.job.max_worker_losses,
        )
        told = execution.abort.told()
        until = asyncio.get_running_loop().time() + self._settings.stale_lease_threshold.total_seconds()
        try:
            while others := self._others(execution):
                left = until - asyncio.get_running_loop().time()
                if told.done() or left <= 0:
                    break
                changes: set[asyncio.Future[Any]] = {*others, told}  # Any: of either
                await asyncio.wait(changes, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        return not execution.abort.is_set

    def _others(self, execution: JobExecution) -> list["asyncio.Task[ExecuteJobResult | None]"]:
        return [task for other, task in self._tasks.items() if other is not execution and not task.done()]

    async def _hand_back(self, execution: JobExecution, *, pause: timedelta) -> None:
        """Hand a job back as soon as the store can be reached, while its lease may still hold."""
        backoff = BackOff()
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.stale_lease_threshold.total_seconds()
        while not await hand_back(self._kernel, execution.job, pause=pause):
            wait = backoff.failed()
            if execution.abort.is_set or loop.time() + wait > until:
                return
            await asyncio.sleep(wait)

    def _count(self, result: ExecuteJobResult | None) -> None:
        match result:
            case None:
                kind = "unsettled"
            case ExecuteJobResult(ghost=True):
                kind = "discarded"
            case ExecuteJobResult(will_retry=True):
                kind = "retried"
            case _:
                kind = result.outcome
        self.by_outcome[kind] += 1

    def _end(self, execution: JobExecution, task: "asyncio.Task[ExecuteJobResult | None]") -> None:
        # The slot is free before anybody hears of it.
        with self._lock:
            del self._tasks[execution]
        if execution is self._loner:
            self._loner = None
        result = None if task.cancelled() else task.result()
        self._count(result)
        if result is not None and result.next_job is not None:
            self._go_on(result.next_job, execution.claimed_at)
        self._ended(result)

    def _go_on(self, job: DequeuedJob, claimed_at: float) -> None:
        if not self.are_reserved:
            self.start(job, claimed_at=claimed_at)
            return
        returned = asyncio.create_task(hand_back(self._kernel, job))
        self._returned.add(returned)
        returned.add_done_callback(self._returned.discard)
