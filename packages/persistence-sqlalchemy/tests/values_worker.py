"""A process that hands values of many types from one stage, or one step, to the next, or ends between them.

    python values_worker.py URL STOP [RUN_ID…]

STOP is `nowhere`, `between` (the first stages are done), `inside` (the second bodies run) or `steps` (the first steps
are done): there it says so and waits to be killed. With run ids it goes on with those, after giving back what a killed
process had taken. At last it prints one JSON object: by the name of the value what became of its run.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow, open_kernel
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    at: tuple[Decimal, ...]


class Order(BaseModel):
    price: Decimal
    due: date
    tags: frozenset[str]


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]


KATHMANDU = datetime(2031, 5, 6, 7, 8, 9, 123_456, tzinfo=timezone(timedelta(hours=5, minutes=45)))
VALUES: dict[str, tuple[Any, Any]] = {
    "decimal": (Decimal, Decimal("1.10")),
    "date": (date, date(2031, 2, 3)),
    "moment": (datetime, datetime(2031, 5, 6, 7, 8, 9, 1, tzinfo=UTC)),
    "moment-elsewhere": (datetime, KATHMANDU),
    "moment-in-a-named-zone": (datetime, KATHMANDU.replace(tzinfo=ZoneInfo("Asia/Kathmandu"))),
    "moment-without-a-zone": (datetime, datetime(2031, 5, 6, 7, 8, 9, 10)),  # noqa: DTZ001 - a value of its own
    "union": (int | str | None, "5"),
    "generic": (
        Page[Order],
        Page[Order](items=[Order(price=Decimal(1), due=date(2031, 1, 2), tags=frozenset())]),
    ),
    "duration": (timedelta, timedelta(days=3, microseconds=1)),
    "tuple": (tuple[int, str], (1, "a")),
    "set": (set[int], {3, 1, 2}),
    "bytes": (bytes, b"\x00\xff\xfe"),
    "uuid": (UUID, UUID(int=2**127 + 1)),
    "enum": (Colour, Colour.RED),
    "dataclass": (Point, Point(1, (Decimal("2.50"), Decimal(3)))),
    "model": (Order, Order(price=Decimal("9.90"), due=date(2031, 1, 1), tags=frozenset({"a", "b"}))),
    "integer-keys": (dict[int, str], {1: "one", -2: "two"}),
    "large": (int, 2**60),
    "empty": (str, ""),
    "none": (type(None), None),
    "no-type-exact": (Any, {"a": [1, 1.0, None, True, ""]}),
    "no-type-a-tuple": (Any, (1, 2)),
    "no-type-integer-keys": (Any, {1: "one"}),
    "no-type-decimal": (Any, Decimal("1.10")),
}

stop = ""
halfway: list[str] = []


def parts(value: Any) -> Iterator[str]:
    """The types of a value and of all that is in it."""
    yield type(value).__name__
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (*parts(key), *parts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from parts(item)
    elif isinstance(value, Point | Order | Page):
        yield from parts(list(vars(value).values()))


def workflow_of(name: str) -> Workflow:
    kind, expected = VALUES[name]

    async def give(ctx: StageContext[Any]) -> Any:
        return expected

    async def take(ctx: StageContext[Any]) -> str:
        if stop == "inside":
            await reach("inside")
        same = ctx.input == expected and list(parts(ctx.input)) == list(parts(expected))
        return "same" if same else f"{ctx.input!r} instead of {expected!r}"

    given = define_stage("give", give, input=None, output=kind)
    return define_workflow(name, input=None).pipe(given).stage("take", take, input=kind, output=str).build()


def steps_of(name: str) -> Workflow:
    """The same within one stage, from its first step to its second."""
    kind, expected = VALUES[name]

    async def body(ctx: StageContext[Any]) -> str:
        given = await ctx.step.run("give", lambda: expected, returns=kind)
        if stop == "steps":
            halfway.append(name)
            await asyncio.Event().wait()
        same = given == expected and list(parts(given)) == list(parts(expected))
        said = "same" if same else f"{given!r} instead of {expected!r}"
        return await ctx.step.run("take", lambda: said, returns=str)

    return define_workflow(f"{name}-by-steps", input=None).stage("s", body, input=None, output=str).build()


async def reach(place: str) -> None:
    sys.stdout.write(f"{place}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def work(kernel: Kernel, created: list[str]) -> None:
    """Run off one stage after the other, as a host does, up to the place where the process ends."""
    for stages in (1, 2):
        await kernel.dispatch(ClaimPendingRuns("first", max_claims=len(created)))
        jobs = (await kernel.dispatch(ClaimJobs("first", limit=len(created)))).jobs
        tasks = {asyncio.create_task(run_job(kernel, job)) for job in jobs}
        while sum(not task.done() for task in tasks) > len(halfway):
            await asyncio.sleep(0.01)
        if halfway:
            await reach("steps")
        await asyncio.gather(*tasks)
        if stop == "between" and stages == 1:
            await reach("between")


async def main(url: str, run_ids: list[str]) -> None:
    workflows = [make(name) for name in VALUES for make in (workflow_of, steps_of)]
    async with open_kernel(workflows, url) as kernel:
        if not run_ids:
            created = [await kernel.dispatch(CreateRun(workflow.id, None)) for workflow in workflows]
            run_ids = [one.run_id for one in created]
            sys.stdout.write(json.dumps(run_ids) + "\n")
            sys.stdout.flush()
            await work(kernel, run_ids)
        else:
            await kernel.ports.job_transport.release_stale(timedelta(0))
        answers = {}
        for run_id in run_ids:
            run = await drive_run(kernel, run_id, timeout="60s")
            steps, stages = await kernel.runs.steps(run_id), await kernel.runs.stages(run_id)
            answers[run.workflow_id] = {
                "status": run.status,
                "output": run.output,
                "error": run.error and run.error.type,
                "attempts of give": (steps[0] if steps else stages[0]).attempt,
            }
        sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    stop = sys.argv[2]
    asyncio.run(main(sys.argv[1], sys.argv[3:]))
