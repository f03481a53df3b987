"""Times that are far away, or none at all, neither stop the engine nor fire at once."""

import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, Suspend, define_stage, define_workflow
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    PollSuspendedStages,
    ReapStaleLeases,
    ReapStaleLeasesResult,
    ReapStuckRuns,
    ReapStuckRunsResult,
)
from stagewright.errors import DefinitionError, InvalidCommandError, InvalidDurationError
from stagewright.hosting import HostSettings, Retention, drive_run, run_maintenance_tick
from stagewright.records import RunRecord
from stagewright.testing import FakeClock
from stagewright_test_support.backend_choice import stores

OpenStore = Callable[..., Awaitable[Kernel]]
Ended = Callable[[Kernel, str], Awaitable[RunRecord]]

# What is about times that are kept.
kept = pytest.mark.parametrize(
    "url", stores("memory", "sqlite", "postgres", "mariadb", differ={"mariadb"}), indirect=True
)

FAR = 10**12
"""So many seconds are thirty thousand years."""

AGES = timedelta(days=365 * 900)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


async def sleeps(ctx: StageContext[Any]) -> Any:
    await ctx.step.sleep("nap", ctx.input)
    return "awake"


async def fails(ctx: StageContext[Any]) -> Any:
    raise ValueError("no")


async def suspends(ctx: StageContext[Any]) -> Any:
    return Suspend(None, poll_interval=ctx.input, max_wait=AGES)


async def look(state: Any, ctx: StageContext[Any]) -> Any:
    raise AssertionError("nobody is to look yet")


def flow(id: str, body: Any, **options: Any) -> Any:
    stage = define_stage("s", body, input=Any, output=Any, **options)
    return define_workflow(id, input=Any).pipe(stage).build()


WORKFLOWS = (
    flow("echo", echo, timeout=AGES),
    flow("sleeps", sleeps, retry=RetryPolicy(1)),
    flow("fails", fails, retry=RetryPolicy(5_001, delay=AGES, max_delay=AGES, factor=1e9)),
    flow("batch", suspends, mode="async-batch", check_completion=look, retry=RetryPolicy(1)),
)
PATIENT = HostSettings(job_absolute_timeout=timedelta(days=10_000))


async def start(kernel: Kernel, workflow_id: str, input: Any = None) -> str:
    """Create a run, and execute what there is to execute now; others end beside it."""
    run_id = (await kernel.dispatch(CreateRun(workflow_id, input))).run_id
    other = (await kernel.dispatch(CreateRun("echo", "beside"))).run_id
    assert (await drive_run(kernel, other)).output == "beside"
    report = await run_maintenance_tick(kernel, PATIENT)
    assert report.failed_steps == ()
    again = (await kernel.dispatch(CreateRun("echo", "after"))).run_id
    assert (await drive_run(kernel, again)).output == "after"
    return run_id


async def run_of(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


@pytest.mark.parametrize("timeout", [FAR, -1, 0, math.nan, timedelta.max])
def test_a_timeout_that_makes_no_sense_is_refused_where_it_is_given(timeout: Any) -> None:
    with pytest.raises(DefinitionError, match="timeout"):
        flow("echo", echo, timeout=timeout)


def test_pauses_that_make_no_sense_are_refused_where_they_are_given() -> None:
    for given in (FAR, -1, math.nan):
        with pytest.raises(DefinitionError, match="delay"):
            RetryPolicy(delay=given)


@kept
@pytest.mark.guarantee("kernel.far-times-stop-nothing")
@pytest.mark.parametrize("length", ["400d", AGES])
async def test_a_long_sleep_is_kept_and_does_not_fire(open_store: OpenStore, length: Any) -> None:
    kernel = await open_store(*WORKFLOWS)
    given = length if isinstance(length, str) else length.total_seconds()
    run_id = await start(kernel, "sleeps", given)
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, (await run_of(kernel, run_id)).status) == (Status.SUSPENDED, Status.RUNNING)
    assert stage.next_poll_at is not None
    assert stage.next_poll_at - datetime.now(UTC) > timedelta(days=399)
    assert (await kernel.dispatch(PollSuspendedStages())).checked == 0
    assert (await kernel.dispatch(ReapStuckRuns(0))).failed == 0


@pytest.mark.parametrize("length", [-1, FAR, -FAR, "nan", "-5s", "1h30m"])
async def test_a_sleep_that_makes_no_sense_is_an_error_at_the_call(
    open_store: OpenStore, ended: Ended, length: Any
) -> None:
    kernel = await open_store(*WORKFLOWS)
    run = await ended(kernel, await start(kernel, "sleeps", length))
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error.type == "InvalidDurationError"


async def test_a_sleep_of_nothing_returns_at_once(open_store: OpenStore, ended: Ended) -> None:
    kernel = await open_store(*WORKFLOWS)
    assert (await ended(kernel, await start(kernel, "sleeps", 0))).output == "awake"


@kept
async def test_a_pause_between_attempts_is_capped_and_kept(open_store: OpenStore) -> None:
    kernel = await open_store(*WORKFLOWS)
    run_id = await start(kernel, "fails")
    (job,) = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures) == (Status.PENDING, 1)
    assert job.due_at is not None
    assert timedelta(days=18_000) < job.due_at - datetime.now(UTC) < timedelta(days=37_000)
    assert (await run_of(kernel, run_id)).status is Status.RUNNING


@kept
@pytest.mark.parametrize("interval", [AGES.total_seconds(), "400d"])
async def test_a_batch_may_be_looked_at_in_a_long_time(open_store: OpenStore, interval: Any) -> None:
    kernel = await open_store(*WORKFLOWS)
    run_id = await start(kernel, "batch", interval)
    (stage,) = await kernel.runs.stages(run_id)
    assert stage.status is Status.SUSPENDED


@kept
async def test_a_batch_beyond_the_calendar_fails_its_run_and_nothing_else(
    open_store: OpenStore, ended: Ended
) -> None:
    kernel = await open_store(*WORKFLOWS)
    run = await ended(kernel, await start(kernel, "batch", timedelta.max.total_seconds() / 2))
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error.type == "InvalidDurationError"


@kept
async def test_at_the_end_of_the_calendar_work_goes_on(open_store: OpenStore, ended: Ended) -> None:
    clock = FakeClock(datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
    kernel = await open_store(*WORKFLOWS, clock=clock)
    run_id = (await kernel.dispatch(CreateRun("echo", 1))).run_id
    await drive_run(kernel, run_id)
    run = await ended(kernel, run_id)
    assert (run.output, run.created_at.year) == (1, 9999)
    late = (await kernel.dispatch(CreateRun("sleeps", "1d"))).run_id
    await drive_run(kernel, late)
    failed = await ended(kernel, late)
    assert failed.error is not None
    assert failed.error.type == "InvalidDurationError"


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, FAR, timedelta(days=-1), "soon", True])
async def test_commands_refuse_what_is_no_length_of_time(open_store: OpenStore, value: Any) -> None:
    kernel = await open_store(*WORKFLOWS)
    for command in (ReapStuckRuns(value), ReapStaleLeases(value)):
        with pytest.raises((InvalidCommandError, InvalidDurationError)):
            await kernel.dispatch(command)


@kept
@pytest.mark.guarantee("kernel.far-times-stop-nothing")
@pytest.mark.parametrize("years", [2_030, 9_990])
async def test_an_age_beyond_the_calendar_concerns_nobody(open_store: OpenStore, years: int) -> None:
    age = timedelta(days=365 * years)
    kernel = await open_store(*WORKFLOWS)
    run_id = (await kernel.dispatch(CreateRun("echo", 1))).run_id
    await kernel.dispatch(ClaimPendingRuns("w"))
    await kernel.dispatch(ClaimJobs("w"))
    assert await kernel.dispatch(ReapStuckRuns(age)) == ReapStuckRunsResult(0, 0, 0, 0)
    assert await kernel.dispatch(ReapStaleLeases(age, absolute_timeout=age)) == ReapStaleLeasesResult(0, 0)
    ages = HostSettings(
        stale_lease_threshold=age, retention=Retention(older_than=age), job_absolute_timeout=age
    )
    report = await run_maintenance_tick(kernel, ages)
    assert (report.failed_steps, report.purged) == ((), 0)
    assert (await run_of(kernel, run_id)).status is Status.RUNNING
