"""Orders to stop, given to `stagewright worker` by signals, and what becomes of its jobs."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stagewright import Kernel, Status, Workflow
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright.records import JobRecord

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]
Effects = Callable[[], list[list[str]]]
StartWorker = Callable[..., Any]
# A file has no server that could go on without the process; the kills over one are in the wide session.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "url", [pytest.param("sqlite", marks=pytest.mark.wide), "postgres"], indirect=True
    ),
]
_SHORT_LEASES = (
    *("--stale-lease-threshold", "2s"),
    *("--job-heartbeat-interval", "500ms"),
    *("--orchestration-interval", "500ms"),
)


async def create(kernel: Kernel, seconds: float) -> str:
    return (await kernel.dispatch(CreateRun("sleep", seconds))).run_id


async def job_of(kernel: Kernel, run_id: str) -> JobRecord | None:
    jobs = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    return jobs[0] if jobs else None


def only_child_of(pid: int) -> int:
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.guarantee("hosts.stop-finishes-what-runs")
async def test_what_runs_is_recorded_and_what_waits_stays_claimable(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    effects: Effects,
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    one = worker(url, "--concurrency", "1", "--shutdown-timeout", "10s")
    running = await create(kernel, 3)
    await eventually(lambda: len(effects()) == 1)
    waiting = await create(kernel, 3)
    await asyncio.sleep(1)
    one.process.send_signal(signal.SIGTERM)
    await eventually(one.has_ended, within=10)
    assert one.process.returncode == 0, one.log
    assert [line[1:3] for line in effects()] == [["begin", running], ["end", running]]
    assert await kernel.ports.persistence.get_run_status(running) is Status.COMPLETED
    job = await job_of(kernel, waiting)
    if job is None:
        assert await kernel.ports.persistence.get_run_status(waiting) is Status.PENDING
    else:
        assert (job.status, job.deliveries, job.interruptions) == (Status.PENDING, 0, 0)
    worker(url)
    assert (await wait_for_run(kernel, waiting, timeout="20s")).status is Status.COMPLETED


@pytest.mark.guarantee("hosts.handed-back-at-once")
async def test_a_grace_that_is_too_short_hands_the_job_back_at_once(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    effects: Effects,
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    first = worker(url, "--shutdown-timeout", "1s")
    run_id = await create(kernel, 120)
    await eventually(lambda: len(effects()) == 1)
    other = worker(url, "--orchestration-interval", "60s", "--poll-interval", "60s")
    await eventually(lambda: "takes up to" in other.log)
    await asyncio.sleep(1)
    began = time.monotonic()
    first.process.send_signal(signal.SIGTERM)
    await eventually(first.has_ended)
    assert time.monotonic() - began < 10
    assert first.process.returncode == 0, first.log
    assert "handed back" in first.log
    await eventually(lambda: len(effects()) == 2, within=10)
    assert [line[0] for line in effects()] == [str(first.process.pid), str(other.process.pid)]
    job = await job_of(kernel, run_id)
    assert job is not None
    assert (job.failures, job.worker_losses, job.interruptions, job.deliveries) == (0, 0, 1, 2)


async def test_after_a_second_signal_the_lease_brings_the_job_to_another_worker(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    effects: Effects,
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    one = worker(url, "--shutdown-timeout", "60s", "--worker-id", "one")
    run_id = await create(kernel, 4)
    await eventually(lambda: len(effects()) == 1)
    one.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.3)
    one.process.send_signal(signal.SIGTERM)
    await eventually(one.has_ended, within=10)
    assert one.process.returncode == 128 + signal.SIGTERM
    worker(url, *_SHORT_LEASES, "--worker-id", "two")
    run = await wait_for_run(kernel, run_id, timeout="20s")
    assert run.status is Status.COMPLETED
    job = await job_of(kernel, run_id)
    assert job is not None
    assert (job.failures, job.worker_losses, job.interruptions) == (0, 1, 0)


@pytest.mark.parametrize("after", [0.2, 0.9, 1.4])
async def test_a_signal_at_start_up_leaves_no_job_behind(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    eventually: Eventually,
    after: float,
) -> None:
    kernel = await opened(url, *flow_list)
    run_ids = [await create(kernel, 60) for _ in range(3)]
    one = worker(url, "--shutdown-timeout", "0s")
    await asyncio.sleep(after)
    one.process.send_signal(signal.SIGTERM)
    await eventually(one.has_ended)
    # Until Python has begun to run the command, the signal ends the process as it ends any other.
    assert one.process.returncode in (0, -signal.SIGTERM), one.log
    for run_id in run_ids:
        job = await job_of(kernel, run_id)
        if job is not None:
            assert (job.status, job.failures, job.worker_losses) == (Status.PENDING, 0, 0)


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-pf", "true"], capture_output=True, check=False).returncode != 0,
    reason="this account can't make a process number one in a namespace of its own",
)
async def test_process_number_one_drains_like_any_other(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    flows: Path,
    effects: Effects,
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    run_id = await create(kernel, 2)
    command = [sys.executable, "-m", "stagewright.cli", "worker", f"{flows}:flows", "--url", url]
    outer = await asyncio.create_subprocess_exec("unshare", "-pf", "--kill-child", *command, cwd=flows.parent)
    try:
        await eventually(lambda: len(effects()) == 1)
        # In its own namespace it is number one, which no signal ends unless it handles it.
        assert effects()[0][0] == "1"
        os.kill(only_child_of(outer.pid), signal.SIGTERM)
        await asyncio.wait_for(outer.wait(), 20)
    finally:
        if outer.returncode is None:
            outer.kill()
            await outer.wait()
    assert outer.returncode == 0
    assert await kernel.ports.persistence.get_run_status(run_id) is Status.COMPLETED
