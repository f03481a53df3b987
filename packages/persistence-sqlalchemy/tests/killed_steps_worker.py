"""Processes that run durable steps of every kind, each killed by SIGKILL at another point.

    python killed_steps_worker.py URL TOLD MODE

A point is before and after each commit, and around each effect of a function; each process gets one point further than
the one before. How many there are differs from run to run, so some more are killed where an effect has just been taken.
MODE is `apart`: every process has a run of its own, and is killed in it; or `on one run`: all have the same, each going
on where the last was killed. Once one has lived to the end this prints `killed`. In mode `apart` it waits for a line
then, works off whatever the killed left behind in one more process, and prints `done`.

Each effect of a function is one line of JSON in the file TOLD. All processes are forks of this one, so a kill costs no
start of an interpreter.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Executable

from stagewright import (
    Kernel,
    RetryPolicy,
    StageContext,
    StepRun,
    Workflow,
    WorkflowRegistry,
    define_workflow,
)
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    JobRef,
    PollSuspendedStages,
    SignalStep,
)
from stagewright.errors import RunStateError, StepTimeoutError
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
    create_engine,
)
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session, Sessions

MOST = 300
AT_ONCE = 2
WARM_UP = "warm-up"
SIGNALS = ("approval", "last")
LAST_EXECUTIONS = ("first-1", "thread-1", "again-2", "second-1")
"""Of each step the execution that ends it when nothing is killed."""


class Points:
    """Counts points, and ends the process at the one of that number, or of that name."""

    def __init__(self, fatal: int | str | None) -> None:
        self._fatal = fatal
        self._passed = 0

    def pass_by(self, name: str | None = None) -> None:
        self._passed += 1
        if self._fatal is not None and self._fatal in (self._passed, name):
            os.kill(os.getpid(), signal.SIGKILL)


class PointedSession:
    """A session of a transaction that has its commit at its end, where the points are."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def can_finish_at_once(self) -> bool:
        return False

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        return await self._session.fetch(statement, parameters)


class PointedSessions:
    """Sessions with a point before and after each commit."""

    def __init__(self, sessions: Sessions, points: Points) -> None:
        self._sessions = sessions
        self._points = points
        self.reading = sessions.reading

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Any]:
        async with self._sessions.writing() as session:
            yield PointedSession(session)
            self._points.pass_by()
        self._points.pass_by()


class Effects:
    """The functions of the steps; what they do outlives their process."""

    def __init__(self, told: str, run_id: str, points: Points) -> None:
        self._told = told
        self._run_id = run_id
        self._points = points

    async def do(self, run: StepRun) -> str:
        self._take_effect(run)
        return run.step_id

    def do_in_a_thread(self, run: StepRun) -> str:
        self._take_effect(run)
        return run.step_id

    async def fail_at_first(self, run: StepRun) -> str:
        self._take_effect(run)
        if run.attempt == 1:
            raise ConnectionError("down")
        return run.step_id

    async def poll(self) -> str:
        self._tell(step="parcel")
        self._points.pass_by()
        return "parcel" if self._count("parcel") > 1 else ""

    def _take_effect(self, run: StepRun) -> None:
        self._points.pass_by()
        self._tell(
            step=run.step_id, attempt=run.attempt, is_reclaim=run.is_reclaim, external_key=run.external_key
        )
        self._points.pass_by(f"{run.step_id}-{run.attempt}")

    def _tell(self, **facts: object) -> None:
        line = json.dumps({"run": self._run_id, **facts}) + "\n"
        descriptor = os.open(self._told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def _count(self, step: str) -> int:
        told = [json.loads(line) for line in Path(self._told).read_text().splitlines()]
        return sum((line["run"], line["step"]) == (self._run_id, step) for line in told)


async def body(ctx: StageContext[Any], *, told: str, points: Points) -> list[Any]:
    """Steps of every kind, one after the other and side by side."""
    effects = Effects(told, ctx.run_id, points)
    first = await ctx.step.run("first", effects.do)
    middle = await asyncio.gather(
        ctx.step.wait_for_signal("approval", timeout="1h", keepalive="1ms"),
        ctx.step.wait_for("parcel", poll=effects.poll, ready=bool, every="1ms", timeout="1h", returns=str),
        ctx.step.run("thread", effects.do_in_a_thread),
        ctx.step.run("again", effects.fail_at_first, retries=1, retry_delay="1ms"),
    )
    await ctx.step.sleep("pause", "1ms")
    try:
        never = await ctx.step.wait_for_signal("never", timeout="1ms")
    except StepTimeoutError:
        never = "timed out"
    second = await ctx.step.run("second", effects.do)
    return [first, *middle, never, second, await ctx.step.wait_for_signal("last", timeout="1h")]


def kernel_over(database: Database, *workflows: Workflow) -> Kernel:
    return Kernel(
        persistence=SqlAlchemyPersistence(database),
        blob_store=SqlAlchemyBlobStore(database),
        job_transport=SqlAlchemyJobTransport(database),
        step_ledger=SqlAlchemyStepLedger(database),
        event_sink=CollectingEventSink(),
        clock=database.clock,
        registry=WorkflowRegistry(workflows),
    )


def flow(workflow_id: str, told: str, points: Points) -> Workflow:
    return (
        define_workflow(workflow_id, input=None)
        .stage(
            "s",
            partial(body, told=told, points=points),
            input=None,
            output=list[Any],
            retry=RetryPolicy(1, MOST, delay=0),
        )
        .build()
    )


async def work(
    url: str, workflow_ids: list[str], told: str, fatal: int | str | None, *, takes_over: bool = False
) -> None:
    """Do what hosts and senders do until the one run of each workflow has ended."""
    points = Points(fatal)
    database = Database(create_engine(url))
    workflows = [flow(workflow_id, told, points) for workflow_id in workflow_ids]
    starter = kernel_over(database, *workflows)
    created = [
        await starter.dispatch(CreateRun(workflow_id, None, idempotency_key=workflow_id))
        for workflow_id in workflow_ids
    ]
    if takes_over:
        # Whoever was killed holds nothing any more; nobody else is alive.
        await SqlAlchemyJobTransport(database).release_stale(timedelta(0))
        await starter.dispatch(EnqueueOwedJobs(owed_for="0s"))
    database.sessions = PointedSessions(database.sessions, points)
    kernel = kernel_over(database, *workflows)
    unsent = {one.run_id: list(SIGNALS) for one in created}
    while unsent:
        await kernel.dispatch(ClaimPendingRuns("claimer", max_claims=MOST))
        await kernel.dispatch(PollSuspendedStages(max_checks=MOST))
        for job in (await kernel.dispatch(ClaimJobs("worker", limit=MOST))).jobs:
            reference = JobRef(job.job_id, job.fence)
            await kernel.dispatch(ExecuteJob(job.run_id, job.workflow_id, job.stage_id, job=reference))
        for run_id, names in list(unsent.items()):
            run = await kernel.runs.get(run_id)
            assert run is not None
            if run.status in TERMINAL_RUN_STATUSES:
                del unsent[run_id]
            elif names:
                await send(kernel, run_id, names.pop(0))
    await database.close()


async def send(kernel: Kernel, run_id: str, name: str) -> None:
    try:
        await kernel.dispatch(SignalStep(run_id, "s", name, payload=name))
    except RunStateError:
        return


def forked(work: Coroutine[Any, Any, object]) -> int:
    """The id of a fork that does this work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(work)
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    work.close()
    return child


def lived(child: int) -> bool:
    """Whether a fork came to the end of its work, or was killed."""
    _, status = os.waitpid(child, 0)
    if status == signal.SIGKILL:
        return False
    if status != 0:
        sys.exit(f"a process ended with the wait status {status}")
    return True


def say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def kill_apart(url: str, told: str) -> None:
    workflow_ids = [WARM_UP, *LAST_EXECUTIONS]
    for name in LAST_EXECUTIONS:
        assert not lived(forked(work(url, [name], told, name))), name
    fatal = itertools.count(1)
    while True:
        own = [f"flow-{len(workflow_ids) + number}" for number in range(AT_ONCE)]
        children = [forked(work(url, [one], told, next(fatal))) for one in own]
        workflow_ids += own
        have_lived = [lived(child) for child in children]
        if any(have_lived):
            break
    say("killed")
    sys.stdin.readline()
    lived(forked(work(url, workflow_ids, told, None, takes_over=True)))
    say("done")


def kill_on_one_run(url: str, told: str) -> None:
    for fatal in range(1, MOST):
        if lived(forked(work(url, ["flow"], told, fatal, takes_over=True))):
            break
    say("killed")


def main(url: str, told: str, mode: str) -> None:
    # What is imported, compiled and built once need not be so in each fork.
    asyncio.run(work(url, [WARM_UP], told, None))
    if mode == "apart":
        kill_apart(url, told)
    else:
        kill_on_one_run(url, told)


if __name__ == "__main__":
    main(*sys.argv[1:])
