"""A worker process over a database, which stands still at a point that it is told, to be killed there.

    python worker_process.py OPTIONS

OPTIONS is a JSON object, see `Options`. The process writes each effect of a body, and the point at which it stands
still, as one line of JSON into the file `told`.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stagewright import StageContext, Workflow, define_workflow, open_kernel, stage
from stagewright.executors import LocalExecutor
from stagewright.ports import ActivityOutcome, ActivityRun
from stagewright.records import StepExpectation, StepPatch, StepRecord
from stagewright_host_node import NodeHost
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
    create_engine,
)
from stagewright_persistence_sqlalchemy.sessions import Session, Sessions

R = TypeVar("R")
_label: ContextVar[str] = ContextVar("label", default="outside")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a worker is started with.

    Attributes:
        url: The database.
        told: The file that it tells what happened.
        name: Its label.
        workflows: The ids of the workflows that it serves.
        sleeps: Which of them sleep in their first stage.
        point: Where it stands still.
        occurrence: At which time that it gets there.
        after: Points that it has to have passed before, one after the other.
        seconds: How long a step takes.
        host: Arguments of the host that aren't its defaults.
    """

    url: str
    told: str
    name: str
    workflows: list[str]
    sleeps: list[str] = field(default_factory=list)
    point: str | None = None
    occurrence: int = 1
    after: list[str] = field(default_factory=list)
    seconds: float = 0.0
    host: dict[str, Any] = field(default_factory=dict)


class Reporter:
    """Writes what happens, and stands still where it shall."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._reached = 0
        self._ahead = list(options.after)

    def tell(self, **facts: object) -> None:
        line = json.dumps({"worker": self._options.name, "pid": os.getpid(), **facts}) + "\n"
        descriptor = os.open(self._options.told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    async def reach(self, point: str) -> None:
        if self._ahead:
            if point == self._ahead[0]:
                del self._ahead[0]
            return
        if point != self._options.point:
            return
        self._reached += 1
        if self._reached == self._options.occurrence:
            self.tell(at=point)
            await asyncio.Event().wait()


class PausingSessions:
    """Sessions that can stand still before and after a commit."""

    def __init__(self, inner: Sessions, reporter: Reporter) -> None:
        self._inner = inner
        self._reporter = reporter

    def reading(self) -> Any:
        return self._inner.reading()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        label = _label.get()
        async with self._inner.writing() as session:
            yield session
            await self._reporter.reach(f"{label}: before commit")
        await self._reporter.reach(f"{label}: after commit")


class PausingLedger:
    """A step ledger that can stand still around each write."""

    def __init__(self, inner: SqlAlchemyStepLedger, reporter: Reporter) -> None:
        self._inner = inner
        self._reporter = reporter

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        return await self._inner.get(stage_record_id, step_id)

    async def list(self, stage_record_id: str) -> list[StepRecord]:
        return await self._inner.list(stage_record_id)

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        return await self._around(f"claim of {record.kind}", lambda: self._inner.claim(record))

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        return await self._around(
            f"{patch.status}", lambda: self._inner.compare_and_set(record_id, expectation, patch)
        )

    async def clear(self, stage_record_id: str) -> None:
        await self._inner.clear(stage_record_id)

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        await self._inner.clear_except(stage_record_id, keep)

    async def _around(self, what: str, write: Callable[[], Awaitable[R]]) -> R:
        await self._reporter.reach(f"step {what}: before")
        token = _label.set("step")
        try:
            answer = await write()
        finally:
            _label.reset(token)
        await self._reporter.reach(f"step {what}: after")
        return answer


class PausingExecutor:
    """Runs bodies here, and can stand still between a body's end and its outcome."""

    def __init__(self, reporter: Reporter) -> None:
        self._inner = LocalExecutor()
        self._reporter = reporter

    async def run(self, activity: ActivityRun) -> ActivityOutcome:
        outcome = await self._inner.run(activity)
        await self._reporter.reach(f"body of {activity.stage.id}: after")
        return outcome


def workflow_of(workflow_id: str, options: Options, reporter: Reporter) -> Workflow:
    """Two stages: the first charges in a durable step, and sleeps after it where it shall."""

    @stage("pay")
    async def pay(ctx: StageContext[int]) -> int:
        reporter.tell(body="pay", workflow=workflow_id)
        await reporter.reach("body of pay: begun")

        async def charge(step: Any) -> int:
            reporter.tell(charge=step.external_key, workflow=workflow_id, attempt=step.attempt)
            await reporter.reach("step body")
            await asyncio.sleep(options.seconds)
            return ctx.input + 1

        charged = await ctx.step.run("charge", charge, returns=int)
        if workflow_id in options.sleeps:
            await ctx.step.sleep("nap", "2s")
            await reporter.reach("body of pay: awake")
        return charged

    @stage("thank")
    async def thank(ctx: StageContext[int]) -> int:
        reporter.tell(body="thank", workflow=workflow_id)
        return ctx.input + 1

    return define_workflow(workflow_id, input=int).pipe(pay).pipe(thank).build()


async def main(options: Options) -> None:
    reporter = Reporter(options)
    database = Database(create_engine(options.url))
    database.sessions = PausingSessions(database.sessions, reporter)

    async def labelled(command: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        token = _label.set(command.type)
        try:
            return await call_next(command)
        finally:
            _label.reset(token)

    async with open_kernel(
        [workflow_of(workflow_id, options, reporter) for workflow_id in options.workflows],
        SqlAlchemyPersistence(database),
        job_transport=SqlAlchemyJobTransport(database),
        step_ledger=PausingLedger(SqlAlchemyStepLedger(database), reporter),
        blob_store=SqlAlchemyBlobStore(database),
        executor=PausingExecutor(reporter),
        middleware=[labelled],
    ) as kernel:
        await NodeHost(kernel, worker_id=options.name, **options.host).run()
    await database.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(Options(**json.loads(sys.argv[1]))))
