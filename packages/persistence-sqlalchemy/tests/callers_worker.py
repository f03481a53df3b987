"""A process that writes a row of its own and starts a run in one transaction, and is killed at some point of it.

    python callers_worker.py URL async|plain before|after

It says `ready` when it has come to the point before, or after, the commit, and waits there for its end.
"""

import asyncio
import sys
import time

import sqlalchemy
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from stagewright import StageContext, SyncKernel, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright_persistence_sqlalchemy import create_engine, prepare_sqlite

ROW = text("INSERT INTO orders (id) VALUES (1)")


async def ship(ctx: StageContext[int]) -> int:
    return ctx.input + 1


shipping = define_workflow("shipping", input=int).pipe(define_stage("ship", ship)).build()
create = CreateRun("shipping", 1, idempotency_key="order 1")


def wait_for_the_end() -> None:
    print("ready", flush=True)  # noqa: T201 - whoever started this reads it
    time.sleep(600)


async def work(url: str, point: str) -> None:
    async with open_kernel(shipping, url) as kernel:
        async with create_engine(url).begin() as connection:
            await connection.execute(ROW)
            await kernel.using(connection).dispatch(create)
            if point == "before":
                wait_for_the_end()
        wait_for_the_end()


def work_plainly(url: str, point: str) -> None:
    engine: Engine = sqlalchemy.create_engine(
        url.replace("+asyncpg", "+psycopg").replace("mariadb://", "mariadb+pymysql://")
    )
    if engine.dialect.name == "sqlite":
        prepare_sqlite(engine)
    with SyncKernel(lambda: open_kernel(shipping, url)) as kernel:
        with Session(engine) as session, session.begin():
            session.execute(ROW)
            kernel.using(session).dispatch(create)
            if point == "before":
                wait_for_the_end()
        wait_for_the_end()


if __name__ == "__main__":
    _, url, sort, point = sys.argv
    if sort == "async":
        asyncio.run(work(url, point))
    else:
        work_plainly(url, point)
