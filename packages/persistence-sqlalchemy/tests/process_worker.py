"""A process of workers: creates runs of its own, then works until so many runs of the whole database have ended.

    python process_worker.py URL RUNS UNTIL

It prints one JSON object: `runs` it created, `bodies` it ran, ids of events it `delivered`, `errors` that reached it.
"""

import asyncio
import json
import sys
from typing import Any

from sqlalchemy import func, select

from stagewright import Kernel, StageContext, WorkflowRegistry, define_workflow
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, FlushOutbox
from stagewright.hosting.job_runner import run_job
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    create_engine,
)
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

bodies: list[tuple[str, str]] = []
errors: list[str] = []


async def body(ctx: StageContext[Any]) -> Any:
    bodies.append((ctx.run_id, ctx.stage_id))
    return ctx.input + 1


async def work(kernel: Kernel, database: Database, name: str, until: int) -> None:
    while not await is_done(database, until):
        try:
            claimed = await kernel.dispatch(ClaimPendingRuns(name, max_claims=2))
            jobs = (await kernel.dispatch(ClaimJobs(name))).jobs
            for job in jobs:
                await run_job(kernel, job)
            told = await kernel.dispatch(FlushOutbox(20))
            if not (claimed.claimed or jobs or told.published):
                await asyncio.sleep(0.01)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")


async def is_done(database: Database, until: int) -> bool:
    ended = select(func.count().label("count")).where(PLAIN_TABLES.runs.c.status == "COMPLETED")
    left = select(func.count().label("count")).where(PLAIN_TABLES.outbox.c.pending)
    async with database.sessions.reading() as session:
        if (await session.fetch(ended, {}))[0]["count"] < until:
            return False
        return bool((await session.fetch(left, {}))[0]["count"] == 0)


async def main(url: str, count: int, until: int) -> None:
    database = Database(create_engine(url))
    sink = CollectingEventSink()
    workflow = define_workflow("flow", input=Any)
    for number in range(3):
        workflow = workflow.stage(f"s{number}", body, input=Any, output=Any)
    kernel = Kernel(
        persistence=SqlAlchemyPersistence(database),
        blob_store=SqlAlchemyBlobStore(database),
        job_transport=SqlAlchemyJobTransport(database),
        event_sink=sink,
        clock=database.clock,
        registry=WorkflowRegistry([workflow.build()]),
    )
    created = [(await kernel.dispatch(CreateRun("flow", 0))).run_id for _ in range(count)]
    await asyncio.gather(*(work(kernel, database, f"worker-{number}", until) for number in range(2)))
    await database.close()
    delivered = [event.event_id for event in sink.events]
    sys.stdout.write(
        json.dumps({"runs": created, "bodies": bodies, "delivered": delivered, "errors": errors})
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
