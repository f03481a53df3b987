"""Arguments out of all proportion, of another type, or that name what can't exist: alike on every store."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from stagewright import Kernel, StageContext, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    Command,
    CreateRun,
    FlushOutbox,
    PollSuspendedStages,
    PurgeRuns,
    ReplayDeadLetters,
)
from stagewright.errors import InvalidCommandError, InvalidCursorError, RunNotFoundError
from stagewright_test_support.backend_choice import stores

OpenStore = Callable[..., Awaitable[Kernel]]

pytestmark = pytest.mark.parametrize(
    "url", stores("memory", "sqlite", "postgres", "mariadb", differ={"mariadb"}), indirect=True
)
EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))
FIRST, LAST = datetime.min.replace(tzinfo=EAST), datetime.max.replace(tzinfo=WEST)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


FLOW = define_workflow("echo", input=Any).stage("s", echo, input=Any, output=Any).build()


@pytest.mark.guarantee("kernel.odd-arguments-are-answered-alike")
@pytest.mark.parametrize("number", [1_000_001, 2**63, 10**30])
async def test_so_much_at_once_is_refused_by_field(open_store: OpenStore, number: int) -> None:
    kernel = await open_store(FLOW)
    commands: list[tuple[Command[Any], str]] = [
        (PurgeRuns(datetime.now(UTC), limit=number), "limit"),
        (ClaimJobs("w", limit=number), "limit"),
        (ClaimPendingRuns("w", max_claims=number), "max_claims"),
        (PollSuspendedStages(max_checks=number), "max_checks"),
        (FlushOutbox(max_events=number), "max_events"),
        (ReplayDeadLetters(max_events=number), "max_events"),
    ]
    for command, field in commands:
        with pytest.raises(InvalidCommandError, match=rf"\$\.{field}: .* less than or equal to 1000000"):
            await kernel.dispatch(command)
    with pytest.raises(InvalidCommandError, match=r"\$\.limit"):
        await kernel.annotations.list("a", limit=number)
    with pytest.raises(InvalidCommandError, match=r"\$\.attempt"):
        await kernel.annotations.list("a", attempt=number)


@pytest.mark.guarantee("kernel.odd-arguments-are-answered-alike")
async def test_a_million_at_once_is_carried_out(open_store: OpenStore) -> None:
    kernel = await open_store(FLOW)
    run_id = (await kernel.dispatch(CreateRun("echo"))).run_id
    assert len((await kernel.dispatch(ClaimPendingRuns("w", max_claims=1_000_000))).claimed) == 1
    assert len((await kernel.dispatch(ClaimJobs("w", limit=1_000_000))).jobs) == 1
    await kernel.dispatch(PollSuspendedStages(max_checks=1_000_000))
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(FlushOutbox(max_events=1_000_000))
    await kernel.dispatch(ReplayDeadLetters(max_events=1_000_000))
    assert (await kernel.dispatch(PurgeRuns(LAST, limit=1_000_000))).run_ids == (run_id,)


@pytest.mark.guarantee("kernel.odd-arguments-are-answered-alike")
async def test_times_at_the_ends_of_the_calendar_concern_nobody_or_everybody(open_store: OpenStore) -> None:
    kernel = await open_store(FLOW)
    run_id = (await kernel.dispatch(CreateRun("echo"))).run_id
    await kernel.annotations.attach(run_id, {"k": 1})
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(FlushOutbox())
    for since, until, found in [(FIRST, LAST, 1), (FIRST, FIRST, 0), (LAST, LAST, 0)]:
        assert len((await kernel.runs.list(created_from=since, created_to=until)).items) == found
        assert len(await kernel.annotations.list(run_id, since=since, until=until)) == found
    assert (await kernel.dispatch(PurgeRuns(FIRST))).purged == 0
    assert (await kernel.dispatch(PurgeRuns(LAST))).run_ids == (run_id,)


@pytest.mark.guarantee("kernel.odd-arguments-are-answered-alike")
@pytest.mark.parametrize("name", ["a\x00", "\ud800", "x" * 100_000])
async def test_what_can_not_exist_is_read_like_what_does_not(open_store: OpenStore, name: str) -> None:
    kernel = await open_store(FLOW)
    run_id = (await kernel.dispatch(CreateRun("echo"))).run_id
    runs = kernel.runs
    assert await runs.get(name) is None
    for read in (runs.stages, runs.steps, runs.signals, runs.events):
        assert await read(name) == []
    assert (await runs.logs(name)).items == ()
    assert (await runs.step_page(name)).items == ()
    assert (await runs.list(workflow_id=name)).items == ()
    assert (await runs.list(definition_version=name)).items == ()
    with pytest.raises(RunNotFoundError):
        await runs.output_of(name, "s")
    assert await runs.events(run_id, after=10**30) == []
    assert len(await runs.events(run_id, after=-(10**30))) == 1


@pytest.mark.guarantee("kernel.odd-arguments-are-answered-alike")
async def test_what_is_of_another_type_is_refused_by_field(open_store: OpenStore) -> None:
    odd: Any = 5
    kernel = await open_store(FLOW)
    runs = kernel.runs
    reads: list[tuple[Awaitable[Any], str]] = [
        *((read(odd), "run_id") for read in (runs.get, runs.stages, runs.steps, runs.signals, runs.events)),
        (runs.logs(odd), "run_id"),
        (runs.step_page(odd), "run_id"),
        (runs.step_page("a", limit=0), "limit"),
        (runs.output_of(odd, "s"), "run_id"),
        (runs.output_of("a", odd), "stage_id"),
        *((runs.list(**{field: odd}), field) for field in ("workflow_id", "definition_version", "statuses")),
        *((runs.list(**{field: odd}), field) for field in ("created_from", "created_to")),
        (runs.list(statuses=["bogus"]), "statuses"),  # type: ignore[list-item]  # on purpose
        (runs.list(statuses="FAILED"), "statuses"),  # type: ignore[arg-type]  # on purpose
        (runs.logs("a", level="loud"), "level"),  # type: ignore[arg-type]  # on purpose
        (runs.logs("a", level=odd), "level"),
        (runs.events("a", after="1"), "after"),  # type: ignore[arg-type]  # on purpose
        (runs.list(limit=10**30), "limit"),
    ]
    for reading, field in reads:
        with pytest.raises(InvalidCommandError, match=rf"\$\.{field}: "):
            await reading
    for reading in (runs.list(cursor=odd), runs.logs("a", cursor=odd), runs.step_page("a", cursor=odd)):
        with pytest.raises(InvalidCursorError):
            await reading
