"""`kernel.runs`: what people read, page by page, while the store goes on changing."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import CancelRun, CreateRun, ExecuteJob
from stagewright.errors import (
    CapabilityMissingError,
    InvalidCommandError,
    InvalidCursorError,
    RunNotFoundError,
    StageOutputMissingError,
)
from stagewright.records import RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]


async def echo(ctx: StageContext[Any]) -> Any:
    for level in ("debug", "info", "warn", "error"):
        ctx.log(level, f"{level} of {ctx.stage_id}")
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo, echo), flow_of(echo, id="other"))


async def create(kernel: Kernel, workflow_id: str = "flow") -> str:
    return (await kernel.dispatch(CreateRun(workflow_id))).run_id


async def listed(kernel: Kernel, **filters: Any) -> list[str]:
    return [run.id for run in (await kernel.runs.list(**filters)).items]


async def test_what_is_not_there(kernel: Kernel) -> None:
    assert await kernel.runs.get("unknown") is None
    assert (await kernel.runs.list()).items == ()
    assert (await kernel.runs.list()).next_cursor is None
    assert await kernel.runs.stages("unknown") == []
    assert await kernel.runs.steps("unknown") == []
    assert await kernel.runs.events("unknown") == []
    assert (await kernel.runs.logs("unknown")).items == ()
    with pytest.raises(RunNotFoundError):
        await kernel.runs.output_of("unknown", "s1")


async def test_the_newest_run_comes_first(kernel: Kernel, clock: FakeClock) -> None:
    runs = []
    for second in (0, 0, 1, 1):
        clock.advance(second)
        runs.append(await create(kernel))
    assert await listed(kernel) == runs[::-1]


async def test_filters_are_combined(kernel: Kernel, clock: FakeClock, start_run: StartRun) -> None:
    start = clock.now()
    first = await create(kernel)
    clock.advance("1m")
    second = await create(kernel, "other")
    clock.advance("1m")
    third = await create(kernel)
    await kernel.dispatch(CancelRun(third))
    version = (await kernel.runs.list(workflow_id="other")).items[0].definition_version
    assert await listed(kernel, workflow_id="flow") == [third, first]
    assert await listed(kernel, statuses=[Status.CANCELLED]) == [third]
    assert await listed(kernel, statuses={Status.PENDING, Status.CANCELLED}) == [third, second, first]
    assert await listed(kernel, statuses=[]) == []
    assert await listed(kernel, definition_version=version) == [second]
    minute = timedelta(minutes=1)
    assert await listed(kernel, created_from=start + minute) == [third, second]
    assert await listed(kernel, created_to=start + minute) == [first]
    assert await listed(kernel, created_from=start + minute, created_to=start + 2 * minute) == [second]
    assert await listed(kernel, workflow_id="flow", statuses=[Status.PENDING], limit=1) == [first]


@pytest.mark.guarantee("kernel.pages-show-every-run-once")
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_paging_shows_every_run_once_while_runs_are_created(
    kernel: Kernel, clock: FakeClock, limit: int
) -> None:
    there: list[str] = []
    for number in range(7):
        there.append(await create(kernel))
        clock.advance(number % 2)
    shown: list[str] = []
    cursor: str | None = None
    while True:
        page = await kernel.runs.list(limit=limit, cursor=cursor)
        shown.extend(run.id for run in page.items)
        await create(kernel)
        clock.advance("1s")
        await create(kernel)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [run_id for run_id in shown if run_id in there] == there[::-1]
    assert len(set(shown)) == len(shown)


async def test_fifty_runs_make_a_page_unless_told_otherwise(kernel: Kernel) -> None:
    for _ in range(51):
        await create(kernel)
    page = await kernel.runs.list()
    assert (len(page.items), page.next_cursor is None) == (50, False)
    last = await kernel.runs.list(cursor=page.next_cursor)
    assert (len(last.items), last.next_cursor) == (1, None)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "ünsinn", "eyJhIjoxfQ=="])
async def test_a_made_up_cursor_is_refused(kernel: Kernel, cursor: str) -> None:
    await create(kernel)
    with pytest.raises(InvalidCursorError):
        await kernel.runs.list(cursor=cursor)


async def test_a_cursor_of_another_listing_is_refused(
    kernel: Kernel, start_run: StartRun, finish: Finish
) -> None:
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    await create(kernel)
    runs, logs = await kernel.runs.list(limit=1), await kernel.runs.logs(run_id, limit=1)
    assert runs.next_cursor is not None
    assert logs.next_cursor is not None
    with pytest.raises(InvalidCursorError):
        await kernel.runs.list(cursor=logs.next_cursor)
    with pytest.raises(InvalidCursorError):
        await kernel.runs.logs(run_id, cursor=runs.next_cursor)


@pytest.mark.parametrize("limit", [0, -1, 1_001, 2.0, True, None, "10"])
async def test_a_limit_that_is_no_count_is_refused(kernel: Kernel, limit: Any) -> None:
    with pytest.raises(InvalidCommandError, match=r"\$\.limit"):
        await kernel.runs.list(limit=limit)
    with pytest.raises(InvalidCommandError, match=r"\$\.limit"):
        await kernel.runs.logs("r", limit=limit)
    with pytest.raises(InvalidCommandError, match=r"\$\.limit"):
        await kernel.runs.events("r", limit=limit)


@pytest.mark.parametrize("field", ["created_from", "created_to"])
async def test_a_time_without_a_zone_is_refused(kernel: Kernel, field: str) -> None:
    filters: dict[str, Any] = {field: datetime(2025, 1, 1)}  # noqa: DTZ001 - on purpose
    with pytest.raises(InvalidCommandError, match=field):
        await kernel.runs.list(**filters)


async def test_logs_come_oldest_first_by_level_and_page(
    kernel: Kernel, start_run: StartRun, finish: Finish
) -> None:
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    expected = [
        f"{level} of {stage}" for stage in ("s1", "s2") for level in ("debug", "info", "warn", "error")
    ]
    assert [line.message for line in (await kernel.runs.logs(run_id)).items] == expected
    warnings = (await kernel.runs.logs(run_id, level="WARN")).items
    assert [line.message for line in warnings] == ["warn of s1", "warn of s2"]
    shown: list[str] = []
    cursor: str | None = None
    while True:
        page = await kernel.runs.logs(run_id, limit=3, cursor=cursor)
        shown.extend(line.message for line in page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert shown == expected


async def test_events_go_on_after_a_sequence(kernel: Kernel, start_run: StartRun, finish: Finish) -> None:
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    everything = await kernel.runs.events(run_id)
    assert await kernel.runs.events(run_id, after=3) == everything[3:]
    assert await kernel.runs.events(run_id, after=2, limit=2) == everything[2:4]
    assert await kernel.runs.events(run_id, after=1_000) == []


async def test_the_output_of_a_stage_once_it_is_completed(kernel: Kernel, start_run: StartRun) -> None:
    run_id = await start_run(kernel, {"a": [1]})
    with pytest.raises(StageOutputMissingError) as caught:
        await kernel.runs.output_of(run_id, "s1")
    assert caught.value.available == ()
    await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))
    assert await kernel.runs.output_of(run_id, "s1") == {"a": [1]}
    with pytest.raises(StageOutputMissingError) as caught:
        await kernel.runs.output_of(run_id, "s2")
    assert caught.value.available == ("s1",)
    with pytest.raises(StageOutputMissingError):
        await kernel.runs.output_of(await create(kernel), "s1")


async def test_what_is_read_is_the_readers_own(kernel: Kernel, start_run: StartRun) -> None:
    run_id = await start_run(kernel, {"a": [1]})
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert isinstance(run.input, dict)
    run.input["a"] = "changed"
    again = await kernel.runs.get(run_id)
    assert again is not None
    assert again.input == {"a": [1]}


def test_a_kernel_without_anything_to_read_from_is_refused(make_kernel: MakeKernel, flow_of: FlowOf) -> None:
    with pytest.raises(CapabilityMissingError, match="run_reader"):
        make_kernel(flow_of(echo), persistence=object())
