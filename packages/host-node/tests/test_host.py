"""A host from its start to its end, on a store in memory unless a test says otherwise."""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import (
    BlockingStageContext,
    Kernel,
    Stage,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
    stage,
)
from stagewright.commands import CreateRun, FlushOutbox
from stagewright.errors import (
    ForkedProcessError,
    InvalidDurationError,
    InvalidSettingError,
    StagewrightError,
)
from stagewright.events import Event
from stagewright.hosting import HOST_DEFAULTS, wait_for_run
from stagewright.hosting.settings import HostSettings
from stagewright.plugins import PluginRunner, event_plugin
from stagewright.ports import WorkNotifier
from stagewright.testing import CollectingEventSink
from stagewright_host_node import NodeHost

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


def flow(*stages: Stage[Any, Any, Any]) -> Workflow:
    builder = define_workflow("w", input=int)
    for one in stages:
        builder = builder.pipe(one)
    return builder.build()


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


@stage("shout")
def shout(ctx: BlockingStageContext[int]) -> str:
    return f"{ctx.input}!"


async def create(kernel: Kernel, number: int = 1) -> str:
    return (await kernel.dispatch(CreateRun("w", number))).run_id


@pytest.mark.guarantee("hosts.runs-to-the-end")
async def test_runs_are_worked_on_to_their_end_and_their_events_delivered(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    sink = CollectingEventSink()
    kernel = await opened(url, flow(double, shout), event_sink=sink)
    async with NodeHost(kernel, handle_signals=False) as host:
        run_ids = [await create(kernel, number) for number in range(20)]
        runs = [await wait_for_run(kernel, run_id, timeout=20) for run_id in run_ids]
        assert [run.output for run in runs] == [f"{number * 2}!" for number in range(20)]
        await eventually(lambda: len([one for one in sink.events if one.type == "workflow:completed"]) == 20)
        stats = host.stats()
    assert (stats.completed, stats.executed, stats.is_running) == (40, 40, True)
    assert host.stats().is_running is False
    assert not host.stats().executing


@pytest.mark.guarantee("hosts.each-body-once")
async def test_many_slots_run_each_body_once(url: str, opened: Opened) -> None:
    bodies: list[int] = []
    at_once = most = 0

    async def body(ctx: StageContext[int]) -> int:
        nonlocal at_once, most
        bodies.append(ctx.input)
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1
        return ctx.input

    kernel = await opened(url, flow(define_stage("body", body, input=int, output=int)))
    run_ids = [await create(kernel, number) for number in range(200)]
    async with NodeHost(kernel, concurrency=8):
        for run_id in run_ids:
            assert (await wait_for_run(kernel, run_id, timeout=60)).status is Status.COMPLETED
    assert sorted(bodies) == list(range(200))
    assert 2 <= most <= 8


async def test_two_hosts_of_one_store_share_the_runs(opened: Opened) -> None:
    bodies: list[tuple[int, str]] = []

    async def body(ctx: StageContext[int]) -> int:
        bodies.append((ctx.input, ctx.stage_id))
        await asyncio.sleep(0)
        return ctx.input

    stages = [define_stage(name, body, input=int, output=int) for name in ("a", "b", "c")]
    kernel = await opened("memory://", flow(*stages))
    async with NodeHost(kernel, concurrency=2) as first, NodeHost(kernel, concurrency=2) as second:
        run_ids = [await create(kernel, number) for number in range(50)]
        for run_id in run_ids:
            assert (await wait_for_run(kernel, run_id, timeout=30)).status is Status.COMPLETED
    assert len(bodies) == len(set(bodies)) == 150
    assert first.worker_id != second.worker_id
    assert first.stats().completed + second.stats().completed == 150


async def test_a_run_is_begun_at_once_though_the_host_polls_rarely(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    kernel = await opened(url, flow(double))
    async with NodeHost(kernel, poll_interval="60s", orchestration_interval="60s") as host:
        await eventually(lambda: host.stats().notifications)
        began = time.monotonic()
        await wait_for_run(kernel, await create(kernel), timeout=10)
        assert time.monotonic() - began < 5


async def test_without_notifications_work_is_found_by_looking(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = await opened("memory://", flow(double, shout))

    async def deaf(self: WorkNotifier, timeout: object) -> bool:
        await asyncio.sleep(3600)
        return False

    monkeypatch.setattr(type(kernel.ports.persistence), "wait_for_work", deaf)
    monkeypatch.setattr(type(kernel.ports.persistence), "is_listening", lambda self: False)
    async with NodeHost(kernel, poll_interval="20ms", orchestration_interval="60s") as host:
        run = await create(kernel)
        async with asyncio.timeout(5):
            while await kernel.ports.persistence.get_run_status(run) is not Status.COMPLETED:
                await asyncio.sleep(0.01)
        assert not host.stats().notifications
        assert any("notifications" in one for one in host.health().degraded)
        assert host.health().ready


async def test_starting_twice_and_stopping_twice_do_nothing_more(opened: Opened) -> None:
    kernel = await opened("memory://", flow(double))
    host = NodeHost(kernel)
    await host.stop()
    await host.start()
    await host.start()
    await wait_for_run(kernel, await create(kernel), timeout=5)
    await asyncio.gather(host.stop(), host.stop())
    await host.stop()
    later = await create(kernel)
    await asyncio.sleep(0.05)
    assert await kernel.ports.persistence.get_run_status(later) is Status.PENDING
    await host.start()
    assert (await wait_for_run(kernel, later, timeout=5)).status is Status.COMPLETED
    await host.stop()


async def test_it_leaves_no_tasks_and_no_threads(opened: Opened, eventually: Eventually) -> None:
    kernel = await opened("memory://", flow(double))
    before = {task for task in asyncio.all_tasks() if not task.done()}
    threads = set(threading.enumerate())
    async with NodeHost(kernel):
        await wait_for_run(kernel, await create(kernel), timeout=5)
    await eventually(lambda: {task for task in asyncio.all_tasks() if not task.done()} <= before)
    await eventually(lambda: set(threading.enumerate()) <= threads)


async def test_health_follows_what_happens(opened: Opened, eventually: Eventually) -> None:
    kernel = await opened("memory://", flow(double))
    host = NodeHost(kernel)
    assert (host.health().live, host.health().ready) == (False, False)
    async with host:
        await eventually(lambda: host.health().ready)
        assert host.health().live
        assert host.health().problems == ()
    assert not host.health().ready


async def test_a_slow_sink_holds_up_no_run(opened: Opened, eventually: Eventually) -> None:
    class Stuck:
        async def emit(self, event: Event) -> None:
            await asyncio.Event().wait()

    kernel = await opened("memory://", flow(double, shout), event_sink=Stuck())
    async with NodeHost(kernel, shutdown_timeout="100ms"):
        assert (await wait_for_run(kernel, await create(kernel), timeout=5)).status is Status.COMPLETED


async def test_a_sink_that_refuses_shows_in_the_stats(opened: Opened, eventually: Eventually) -> None:
    class Refuses:
        async def emit(self, event: Event) -> None:
            raise ConnectionError("nobody there")

    kernel = await opened("memory://", flow(double), event_sink=Refuses())
    async with NodeHost(kernel) as host:
        await wait_for_run(kernel, await create(kernel), timeout=5)
        await eventually(lambda: host.stats().event_sink.status == "degraded")
        assert "nobody there" in str(host.stats().event_sink.last_error)
        assert any("nobody there" in one for one in host.health().degraded)
        assert host.health().ready


@pytest.mark.parametrize("ending", ["hangs", "exits"])
async def test_a_plugin_that_hangs_or_exits_is_named_and_stops_no_delivery(
    opened: Opened, eventually: Eventually, ending: str
) -> None:
    delivered: list[str] = []

    @event_plugin("mail", on=["workflow:completed"])
    async def mail(event: Event) -> None:
        if event.run_id != first:
            delivered.append(event.run_id)
        elif ending == "hangs":
            await asyncio.Event().wait()
        else:
            raise SystemExit(3)

    kernel = await opened("memory://", flow(double), event_sink=PluginRunner([mail], timeout="50ms"))
    first = await create(kernel)
    async with NodeHost(kernel, handle_signals=False) as host:
        await wait_for_run(kernel, first, timeout=20)
        await eventually(lambda: any("'mail'" in one for one in host.health().degraded))
        second = await create(kernel, 2)
        await eventually(lambda: second in delivered)
        assert host.health().live


async def test_run_works_until_it_is_cancelled(opened: Opened, eventually: Eventually) -> None:
    kernel = await opened("memory://", flow(double))
    host = NodeHost(kernel, handle_signals=False)
    running = asyncio.create_task(host.run())
    await wait_for_run(kernel, await create(kernel), timeout=5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not host.stats().is_running


@pytest.mark.guarantee("hosts.a-fork-is-told")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system doesn't fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_forked_child_gets_a_plain_error_at_its_first_use(opened: Opened) -> None:
    kernel = await opened("memory://", flow(double))
    host = NodeHost(kernel)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = []
        for use in (kernel.dispatch(FlushOutbox()), kernel.runs.get("x"), host.start(), host.stop()):
            try:
                use.send(None)
            except ForkedProcessError as error:
                told.append(str(error))
            except BaseException as error:
                told.append(repr(error))
        os.write(writer, "\n".join(told).encode())
        os._exit(0)
    os.close(writer)
    await asyncio.to_thread(os.waitpid, child, 0)
    with os.fdopen(reader) as pipe:
        lines = pipe.read().splitlines()
    assert len(lines) == 4
    assert all("was made before the process forked" in line for line in lines)
    async with host:
        assert (await wait_for_run(kernel, await create(kernel), timeout=5)).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("settings", "error", "name"),
    [
        ({"concurrency": 0}, InvalidSettingError, "concurrency"),
        ({"concurrency": 1.5}, InvalidSettingError, "concurrency"),
        ({"max_claims_per_tick": True}, InvalidSettingError, "max_claims_per_tick"),
        ({"poll_interval": 0}, InvalidDurationError, "poll_interval"),
        ({"orchestration_interval": -1}, InvalidDurationError, "orchestration_interval"),
        ({"shutdown_timeout": "soon"}, InvalidDurationError, "shutdown_timeout"),
        ({"job_heartbeat_interval": "30s"}, InvalidSettingError, "job_heartbeat_interval"),
        ({"worker_id": ""}, InvalidSettingError, "worker_id"),
        ({"worker_id": "a\nb"}, InvalidSettingError, "worker_id"),
        ({"serves": "some"}, InvalidSettingError, "serves"),
    ],
)
async def test_settings_that_nothing_can_work_with_are_refused(
    opened: Opened, settings: dict[str, Any], error: type[StagewrightError], name: str
) -> None:
    kernel = await opened("memory://", flow(double))
    with pytest.raises(error, match=f"{name}="):
        NodeHost(kernel, **settings)


async def test_settings_are_those_of_the_defaults_unless_given(opened: Opened) -> None:
    kernel = await opened("memory://", flow(double))
    host = NodeHost(kernel, worker_id="w", poll_interval="2s")
    given = {name: getattr(host.settings, name) for name in HostSettings.__dataclass_fields__}
    defaults = {name: getattr(HOST_DEFAULTS, name) for name in HostSettings.__dataclass_fields__}
    differs = {name for name in given if given[name] != defaults[name]}
    assert differs == {"worker_id", "poll_interval"}
    assert host.worker_id.startswith("w@")
