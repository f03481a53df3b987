"""Hosts on a fair transport: no tenant has more bodies than its places, and nobody waits for the next look."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import Kernel, StageContext, Status, define_workflow, open_kernel
from stagewright.commands import ClaimJobs, CreateRun
from stagewright.hosting import wait_for_run
from stagewright.records import Fairness, ServedDefinition
from stagewright_host_node import NodeHost

Eventually = Callable[..., Awaitable[None]]

# Whoever isn't woken looks again after the test has failed.
SELDOM: dict[str, Any] = {"orchestration_interval": "10m", "poll_interval": "10m"}

on_both = pytest.mark.parametrize("place", ["memory", "sqlite"])


class Config(BaseModel):
    tenant: str


def fair(cap: int) -> Fairness:
    return Fairness(max_concurrent_per_group=cap, group_by="config.tenant")


def url_of(place: str, folder: Path) -> str:
    return "memory://" if place == "memory" else f"sqlite:///{folder / 'fair.db'}"


async def create(kernel: Kernel, workflow: str, tenant: str) -> str:
    return (await kernel.dispatch(CreateRun(workflow, config={"s": {"tenant": tenant}}))).run_id


@on_both
async def test_no_tenant_has_more_bodies_than_its_places(place: str, tmp_path: Path) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def body(ctx: StageContext[Any, Config]) -> None:
        tenant = ctx.config.tenant
        running[tenant] += 1
        most[tenant] = max(most[tenant], running[tenant])
        await asyncio.sleep(0.01)
        running[tenant] -= 1

    flow = define_workflow("flow", input=Any).stage("s", body, input=Any, output=None, config=Config).build()
    async with (
        open_kernel(flow, url_of(place, tmp_path), fairness=fair(2)) as kernel,
        NodeHost(kernel, worker_id="a", concurrency=4, **SELDOM),
        NodeHost(kernel, worker_id="b", concurrency=4, **SELDOM),
    ):
        runs = [await create(kernel, "flow", tenant) for tenant in ("noisy", "quiet") for _ in range(8)]
        ended = await asyncio.gather(*(wait_for_run(kernel, run_id, timeout="30s") for run_id in runs))
    assert {run.status for run in ended} == {Status.COMPLETED}
    assert set(most) == {"noisy", "quiet"}
    assert max(most.values()) <= 2


@on_both
@pytest.mark.guarantee("hosts.fair-places-are-filled-at-once")
async def test_who_can_fill_a_free_place_is_woken(place: str, tmp_path: Path, eventually: Eventually) -> None:
    """The host whose job was in the way, and is suspended, doesn't serve the one that comes next."""
    end = asyncio.Event()
    looks: Counter[str] = Counter()

    async def wait(ctx: StageContext[Any, Config]) -> None:
        await end.wait()
        await ctx.step.sleep("nap", "1h")

    async def go(ctx: StageContext[Any, Config]) -> None:
        return

    async def note(command: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        result = await call_next(command)
        if isinstance(command, ClaimJobs):
            looks[command.worker_id[0]] += 1
        return result

    flows = [
        define_workflow(id, input=Any).stage("s", body, input=Any, output=None, config=Config).build()
        for id, body in (("waits", wait), ("goes", go))
    ]
    served = [[ServedDefinition(flow.id, flow.definition_version)] for flow in flows]
    async with (
        open_kernel(flows, url_of(place, tmp_path), fairness=fair(1), middleware=[note]) as kernel,
        NodeHost(kernel, worker_id="a", serves=served[0], **SELDOM),
    ):
        first = await create(kernel, "waits", "t")
        await eventually(lambda: _has_job(kernel, first, Status.RUNNING))
        async with NodeHost(kernel, worker_id="b", serves=served[1], **SELDOM):
            second = await create(kernel, "goes", "t")
            await eventually(lambda: _has_job(kernel, second, Status.PENDING))
            await eventually(lambda: _is_quiet(looks))
            end.set()
            run = await wait_for_run(kernel, second, timeout="10s")
    assert run.status is Status.COMPLETED


async def _has_job(kernel: Kernel, run_id: str, status: Status) -> bool:
    return [job.status for job in await kernel.ports.job_transport.get_jobs_by_run(run_id)] == [status]


async def _is_quiet(looks: Counter[str]) -> bool:
    """Whether the host has looked in vain, and doesn't look again by itself."""
    before = looks["b"]
    await asyncio.sleep(0.2)
    return looks["b"] == before > 0
