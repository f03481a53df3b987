"""A database as an older version left it: runs in every state with odd values, in that version's tables and columns."""

import re
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, MetaData, Table, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright import Kernel, RetryPolicy, StageContext, Workflow, define_workflow, open_kernel
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    FlushOutbox,
    SignalStep,
)
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job
from stagewright.records import LogRecord
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

__all__ = [
    "ODD",
    "OPEN",
    "Rows",
    "copy_runs",
    "make_runs",
    "odd_flow",
    "opened",
    "read_rows",
    "reflected",
    "row_count",
]

Rows: TypeAlias = dict[str, list[dict[str, Any]]]
"""By table, its rows, each by column, as the driver gives them."""

ODD: Final[dict[str, Any]] = {
    "quotes": ["'", '"', "`", "''; DROP TABLE workflow_runs; --", "\\", "\\\\n", r"C:\new\0", "%s :x $1 ?"],
    "writing": [
        "\U0001f9ea\U0001f468\u200d\U0001f469",
        "שלום\u202eabc",
        "مرحبا",
        "e\u0301",
        "\ufeff",
        "𝔘𝔫𝔦",
        "\uffff",
    ],
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x80\u2028",
    "json in text": '{"a": "{\\"b\\": [1, \\"\\\\u0000 NaN null\\"]}"}',
    "nothing": [None, "null", "NULL", "", [], {}, False, 0],
    "whole numbers": [2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**200],
    "other numbers": [1e308, -1e308, 5e-324, -0.0, 0.0, 1.0, 0.1 + 0.2, 1e-7],
    "keys": {"": 1, "b": 2, "a": 3, "\U0001f511": 4, "a.b[0]": 5, "'": 6, "null": None},
    "large": "spilled \U0001f9ea\\" * 300,
}
"""What a run may have been given."""

OPEN: Final = ("never claimed", "claimed", "its worker lost", "asleep", "waiting for a signal")
_ENDED: Final = ("well", "fails once", "not wanted")
_SPILLS: Final = 1_000
_FIRST: Final = datetime(1000, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def odd_flow(looked: Callable[[str], None] = lambda _run_id: None) -> Workflow:
    """A workflow that does as it is told, then answers with its value; `looked` is told of each first step."""

    async def first(ctx: StageContext[Any]) -> Any:
        value, how = ctx.input["value"], ctx.input["how"]

        async def look() -> Any:
            looked(ctx.run_id)
            return value

        await ctx.step.run("look", look, returns=Any)
        for number in range(20):
            ctx.log("info", repr(value)[number:], value=value)
        ctx.annotate("odd", value, payload=value)
        if how == "fails once" and ctx.attempt == 1:
            raise RuntimeError(repr(value)[:500])
        if how == "asleep":
            await ctx.step.sleep("nap", "1ms")
        if how == "waiting for a signal":
            return await ctx.step.wait_for_signal("answer", timeout="30d", returns=Any)
        return value

    async def second(ctx: StageContext[Any]) -> Any:
        return ctx.input

    builder = define_workflow("odd", input=Any)
    for id, body in (("a", first), ("b", second)):
        builder = builder.stage(id, body, input=Any, output=Any, retry=RetryPolicy(1))
    return builder.build()


@asynccontextmanager
async def opened(url: str, looked: Callable[[str], None] = lambda _run_id: None) -> AsyncIterator[Kernel]:
    """A kernel of this version's over a database."""
    async with open_kernel(odd_flow(looked), url, spill_threshold_bytes=_SPILLS) as kernel:
        yield kernel


async def make_runs(kernel: Kernel, values: Sequence[Any]) -> None:
    """One run in each state for each value, none of which anybody works on any more."""

    async def create(how: str) -> list[str]:
        commands = [
            CreateRun("odd", {"how": how, "value": value}, idempotency_key=f"{how} {uuid.uuid4()}")
            for value in values
        ]
        return [(await kernel.dispatch(command)).run_id for command in commands]

    async def claim() -> Any:
        while (await kernel.dispatch(ClaimPendingRuns("lost", max_claims=50))).claimed:
            pass
        return (await kernel.dispatch(ClaimJobs("lost", limit=2 * len(values)))).jobs

    for how in _ENDED[:2]:
        for run_id in await create(how):
            await drive_run(kernel, run_id)
            lines = [
                LogRecord(id=str(uuid.uuid4()), run_id=run_id, level="INFO", message=str(at), created_at=at)
                for at in (_FIRST, _LAST)
            ]
            await kernel.ports.persistence.append_logs(lines)
    for run_id in await create(_ENDED[2]):
        await kernel.dispatch(CancelRun(run_id, reason="'\U0001f9ea\\"))
    waiting = [*await create("asleep"), *await create("waiting for a signal")]
    for job in await claim():
        await run_job(kernel, job)
    for run_id in waiting[len(values) :: 2]:
        # Signals that are there already, and those that are still to come.
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert isinstance(run.input, dict)
        await kernel.dispatch(SignalStep(run_id, "a", "answer", payload=run.input["value"]))
    while (await kernel.dispatch(FlushOutbox())).published:
        pass
    await create("its worker lost")
    await claim()
    await create("claimed")
    while (await kernel.dispatch(ClaimPendingRuns("lost", max_claims=50))).claimed:
        pass
    await create("never claimed")


def reflected(connection: Connection) -> MetaData:
    """Stagewright's tables as they are in a database, whatever this version takes them for."""
    found = MetaData()
    found.reflect(connection, only=lambda name, _: name in PLAIN_TABLES.metadata.tables)
    return found


def read_rows(connection: Connection, found: MetaData) -> Rows:
    """Every row, in an order of their primary keys that is the same everywhere, with those columns that `found` has."""
    rows: Rows = {}
    for table in found.sorted_tables:
        keys = [column.name for column in table.primary_key.columns]
        found_rows = [dict(row) for row in connection.execute(select(table)).mappings()]
        rows[table.name] = sorted(found_rows, key=itemgetter(*keys))
    return rows


def row_count(connection: Connection, found: MetaData) -> int:
    """How many rows there are in all."""
    return sum(
        connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in found.sorted_tables
    )


async def copy_runs(rows: Rows, engine: AsyncEngine, *, at_least: int) -> MetaData:
    """Write rows into a database, with other ids again and again until there are so many; answers with its tables."""

    def copy(connection: Connection) -> MetaData:
        found = reflected(connection)
        per_copy = sum(len(rows[table.name]) for table in found.sorted_tables)
        for number in range(-(-at_least // per_copy)):
            for table in found.sorted_tables:
                if copied := _copies(rows[table.name], table, number):
                    connection.execute(table.insert(), copied)
        return found

    async with engine.begin() as connection:
        return await connection.run_sync(copy)


def _copies(rows: list[dict[str, Any]], table: Table, number: int) -> list[dict[str, Any]]:
    if table.name in ("work_signals", "workflow_definitions") and number:
        return []
    # The place in a queue is the database's to give.
    columns = [column.name for column in table.columns if column.name != "position"]
    return [{name: _renumbered(row[name], number) for name in columns} for row in rows]


def _renumbered(value: Any, number: int) -> Any:
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return value
        return _renumbered(text, number).encode()
    return _ID.sub(lambda id: f"{id[0][:-4]}{number:04x}", value) if isinstance(value, str) else value
