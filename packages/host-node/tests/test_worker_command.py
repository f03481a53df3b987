"""`stagewright worker` in a process of its own: signals, deploys, settings."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from stagewright import Kernel, Status, Workflow
from stagewright.commands import CreateRun
from stagewright.filesystem import FileSystemBlobStore
from stagewright.records import JobRecord

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]
Effects = Callable[[], list[list[str]]]
StartWorker = Callable[..., Any]
SHORT_LEASES = (
    *("--stale-lease-threshold", "1s"),
    *("--job-heartbeat-interval", "0.3s"),
    *("--orchestration-interval", "0.5s"),
)
on_databases = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


async def create(kernel: Kernel, workflow: str, seconds: float, count: int = 1) -> list[str]:
    return [(await kernel.dispatch(CreateRun(workflow, seconds))).run_id for _ in range(count)]


async def jobs_of(kernel: Kernel, run_ids: list[str]) -> list[JobRecord]:
    found = [await kernel.ports.job_transport.get_jobs_by_run(run_id) for run_id in run_ids]
    return [job for jobs in found for job in jobs]


async def has_failed(kernel: Kernel, run_id: str) -> bool:
    return await kernel.ports.persistence.get_run_status(run_id) is Status.FAILED


async def all_ended(kernel: Kernel, run_ids: list[str]) -> bool:
    statuses = [await kernel.ports.persistence.get_run_status(run_id) for run_id in run_ids]
    return all(status is Status.COMPLETED for status in statuses)


@pytest.mark.slow
@pytest.mark.guarantee("hosts.sigterm-loses-nothing")
@on_databases
async def test_sigterm_under_load_loses_nothing_and_spends_nothing(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    effects: Effects,
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    run_ids = await create(kernel, "sleep", 0.5, count=24)
    first = worker(url, "--concurrency", "4")
    await eventually(lambda: len(effects()) >= 6)
    first.process.send_signal(signal.SIGTERM)
    await eventually(first.has_ended, within=8)
    assert first.process.returncode == 0, first.log
    begun = {line[2] for line in effects() if line[1] == "begin"}
    ended = {line[2] for line in effects() if line[1] == "end"}
    assert begun == ended
    assert 4 <= len(ended) < 24
    for job in await jobs_of(kernel, run_ids):
        assert job.status in (Status.COMPLETED, Status.PENDING)
        assert (job.failures, job.worker_losses) == (0, 0)
    second = worker(url, "--concurrency", "12")
    await eventually(lambda: all_ended(kernel, run_ids), within=30)
    second.process.send_signal(signal.SIGTERM)
    await eventually(second.has_ended)
    assert second.process.returncode == 0
    assert sorted(line[2] for line in effects() if line[1] == "begin") == sorted(run_ids)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_worker_whose_loop_is_blocked_leaves_on_time(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    effects: Effects,
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    one = worker(url, "--shutdown-timeout", "1s")
    await create(kernel, "block", 30)
    await eventually(lambda: len(effects()) == 1)
    began = time.monotonic()
    one.process.send_signal(signal.SIGTERM)
    await eventually(one.has_ended)
    assert time.monotonic() - began < 4
    assert one.process.returncode == 75
    assert "the event loop is blocked" in one.log


@pytest.mark.slow
@pytest.mark.guarantee("hosts.blocked-loop-keeps-its-lease")
@on_databases
@pytest.mark.parametrize("workflow", ["block", "thread"])
async def test_a_body_that_takes_longer_than_the_lease_keeps_it(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    effects: Effects,
    eventually: Eventually,
    flows: Path,
    workflow: str,
) -> None:
    kernel = await opened(url, *flow_list)
    lease = (
        "--stale-lease-threshold",
        "2s",
        "--job-heartbeat-interval",
        "500ms",
        "--orchestration-interval",
        "500ms",
    )
    held = flows.parent / "held"
    held.touch()
    first = worker(url, *lease, "--worker-id", "first")
    [long] = await create(kernel, workflow, 5)
    await eventually(lambda: len(effects()) == 1)
    second = worker(url, *lease, "--worker-id", "second")
    await eventually(lambda: "takes up to" in second.log)
    short = await create(kernel, "sleep", 0.1, count=10)
    await eventually(lambda: all_ended(kernel, short))
    assert await kernel.ports.persistence.get_run_status(long) is Status.RUNNING
    held.unlink()
    await eventually(lambda: all_ended(kernel, [long]))
    [job] = await jobs_of(kernel, [long])
    assert (job.deliveries, job.worker_losses) == (1, 0)
    by_process = {line[0] for line in effects() if line[2] in short}
    name = f"stage '{workflow}' of run {long}"
    if workflow == "block":
        assert by_process == {str(second.process.pid)}
        await eventually(
            lambda: f"{name} (at {flows}" in first.log and "blocked the event loop for" in first.log
        )
        [line] = [line for line in first.log.splitlines() if "so far" in line]
        assert name in line
    else:
        assert "blocked" not in first.log


@pytest.mark.slow
@pytest.mark.guarantee("kernel.timeouts-bound-one-invocation")
@on_databases
async def test_bodies_that_outlast_their_timeout_change_nothing_when_they_return(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    effects: Effects,
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    one = worker(url)
    await eventually(lambda: "takes up to" in one.log)
    [late] = await create(kernel, "late", 5)
    await eventually(lambda: len(effects()) == 1)
    began = time.monotonic()
    await eventually(lambda: all_ended(kernel, [late]))
    # The second attempt was made after a second, while the first one was still asleep.
    assert time.monotonic() - began < 5
    assert [line[1:] for line in effects()] == [
        ["begin", late, "1"],
        ["begin", late, "2"],
        ["end", late, "2"],
    ]
    run, events = await kernel.runs.get(late), await kernel.runs.events(late)
    assert run is not None
    assert run.output == 2
    await eventually(lambda: len(effects()) == 4)
    await asyncio.sleep(0.3)
    assert await kernel.runs.get(late) == run
    assert len(await kernel.runs.events(late)) == len(events)

    # One that blocks the loop is found out when it lets go.
    [stall] = await create(kernel, "stall", 3)
    await eventually(lambda: has_failed(kernel, stall))
    failed = await kernel.runs.get(stall)
    assert failed is not None
    assert failed.error is not None
    assert failed.error.code == "STAGE_TIMEOUT"
    await eventually(lambda: f"stage 'stall' of run {stall} (at " in one.log)
    # A thread that nobody waits for doesn't keep the process.
    await create(kernel, "late", 60)
    await eventually(lambda: len(effects()) == 8)
    one.process.send_signal(signal.SIGTERM)
    await eventually(one.has_ended, within=5)
    assert one.process.returncode == 0


async def test_an_empty_url_is_no_default(worker: StartWorker, eventually: Eventually) -> None:
    one = worker("")
    await eventually(one.has_ended)
    assert one.process.returncode == 2
    assert one.log == "stagewright: --url='': write a URL such as sqlite:///runs.db, or leave it out\n"


async def test_a_truth_value_is_no_number(flows: Path, worker: StartWorker, eventually: Eventually) -> None:
    (flows.parent / "pyproject.toml").write_text("[tool.stagewright]\nconcurrency = true\n")
    one = worker("memory://")
    await eventually(one.has_ended)
    assert one.process.returncode == 2
    assert "concurrency=True under [tool.stagewright]" in one.log


@pytest.mark.slow
@pytest.mark.guarantee("hosts.a-body-that-ends-the-loop-is-a-loss")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_body_that_ends_the_loop_ends_no_more_workers_than_its_stage_may_lose(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    [run_id] = await create(kernel, "quit", 0)
    first = worker(url, *SHORT_LEASES)
    await eventually(first.has_ended)
    assert first.process.returncode == 75
    assert "SystemExit: of a task" in first.log
    assert "works for sleep, large, garbage, block, thread, late, stall, quit in sqlite:///" in first.log
    [job] = await jobs_of(kernel, [run_id])
    assert job.status is Status.RUNNING, "the lease brings it to others, and nobody handed it back"
    second = worker(url, *SHORT_LEASES)
    await eventually(lambda: has_failed(kernel, run_id))
    assert not second.has_ended()


async def test_what_is_wrong_with_a_setting_is_one_line(worker: StartWorker, eventually: Eventually) -> None:
    cases = [
        (("--shutdown-timeout", "soon"), {}, "shutdown_timeout='soon' is not a duration"),
        (("--retention", "30"), {}, "retention='30' has no unit; write for instance \"30d\""),
        ((), {"STAGEWRIGHT_RETENTION": "30"}, "retention='30' has no unit"),
        (
            (),
            {"STAGEWRIGHT_CONCURRENCY": "many"},
            "STAGEWRIGHT_CONCURRENCY='many': input should be a valid integer",
        ),
        ((), {"STAGEWRIGHT_MAX_CLAIMS_PER_TICK": "0"}, "max_claims_per_tick=0 must be a whole number"),
        ((), {"STAGEWRIGHT_LOG_LEVEL": "loud"}, "log_level='loud' is none of"),
    ]
    started = [worker("memory://", *options, environment=given) for options, given, _ in cases]
    for one, (_, _, expected) in zip(started, cases, strict=True):
        await eventually(one.has_ended)
        assert one.process.returncode == 2
        assert expected in one.log
        assert len(one.log.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--max-concurrent-per-group", "0"), "max_concurrent_per_group=0 must be a whole number of jobs"),
        (("--group-by", "config.tenant"), "group_by='config.tenant' needs max_concurrent_per_group"),
    ],
)
async def test_fairness_that_is_none_is_one_line(
    worker: StartWorker, eventually: Eventually, options: tuple[str, str], expected: str
) -> None:
    refused = worker("memory://", *options)
    await eventually(refused.has_ended)
    assert refused.process.returncode == 2
    assert expected in refused.log
    assert len(refused.log.splitlines()) == 1


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_worker_keeps_the_cap_that_it_is_given(
    url: str, opened: Opened, flow_list: list[Workflow], worker: StartWorker, eventually: Eventually
) -> None:
    kernel = await opened(url, *flow_list)
    runs = await create(kernel, "sleep", 0.05, 6)
    started = worker(url, "--max-concurrent-per-group", "2", "--group-by", "config.tenant")
    most = 0

    async def watch() -> bool:
        nonlocal most
        running = [job for job in await jobs_of(kernel, runs) if job.status is Status.RUNNING]
        most = max(most, len(running))
        return await all_ended(kernel, runs)

    await eventually(watch)
    assert 0 < most <= 2
    assert not started.has_ended()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_worker_keeps_large_values_where_it_is_told_to(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    blobs = FileSystemBlobStore(tmp_path / "large values")
    kernel = await opened(url, *flow_list, blob_store=blobs)
    [run_id] = await create(kernel, "large", 100_000)
    worker(url, "--blob-store", blobs.folder.as_uri())
    await eventually(lambda: all_ended(kernel, [run_id]))
    assert [key.split("/")[2] async for key in blobs.list("")] == [run_id]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_what_a_worker_has_made_before_it_works_is_no_garbage(
    url: str, opened: Opened, flow_list: list[Workflow], worker: StartWorker, eventually: Eventually
) -> None:
    kernel = await opened(url, *flow_list)
    [run_id] = await create(kernel, "garbage", 1)
    worker(url)
    await eventually(lambda: all_ended(kernel, [run_id]))
    run = await kernel.runs.get(run_id)
    assert run is not None
    kept_out, threshold = cast(list[int], run.output)
    assert kept_out > 10_000
    assert threshold == 10_000


def test_a_threshold_of_the_applications_own_stays() -> None:
    program = (
        "from stagewright_host_node.garbage_collection import settle_garbage_collection as settle; import gc; "
        "gc.set_threshold(1234); settle(); print(gc.get_threshold()[0]); gc.disable(); settle(); print(gc.isenabled())"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["1234", "False"]


@pytest.mark.guarantee("hosts.settings-by-precedence")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_flag_beats_the_environment_which_beats_the_project(
    url: str,
    flows: Path,
    opened: Opened,
    flow_list: list[Workflow],
    worker: StartWorker,
    eventually: Eventually,
) -> None:
    await opened(url, *flow_list)
    project = '[tool.stagewright]\nurl = "sqlite:///nowhere/x.db"\nconcurrency = 3\nworker_id = "project"\n'
    (flows.parent / "pyproject.toml").write_text(project + "shutdown_timeout = 2\nunheard_of = 1\n")
    environment = {
        "STAGEWRIGHT_CONCURRENCY": "5",
        "STAGEWRIGHT_WORKER_ID": "environment",
        "STAGEWRIGHT_ABORT_GRACE": "1",
    }
    one = worker(url, "--worker-id", "flag", environment=environment)
    await eventually(lambda: "worker flag@" in one.log)
    assert "takes up to 5 jobs" in one.log
    one.process.send_signal(signal.SIGINT)
    await eventually(one.has_ended)
    assert one.process.returncode == 0
    other = worker(url)
    await eventually(lambda: "worker project@" in other.log)
    assert "takes up to 3 jobs" in other.log
    assert "a worker doesn't know: unheard_of" in other.log
