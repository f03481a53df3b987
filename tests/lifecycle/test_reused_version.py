"""A build that has another structure under a version that runs are pinned to leaves those runs alone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import (
    Kernel,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    FromStage,
    JobRef,
    ListVersions,
    PollSuspendedStages,
    ReapStuckRuns,
    RedriveRun,
    SignalStep,
    TransitionRun,
)
from stagewright.definitions import NotReady, Suspend
from stagewright.errors import DefinitionVersionConflictError
from stagewright.hosting.job_runner import run_job
from stagewright.records import RunRecord
from stagewright_host_node import NodeHost

OpenStore = Callable[..., Awaitable[Kernel]]
Beside = Callable[..., Kernel]
Eventually = Callable[..., Awaitable[None]]
Ended = Callable[[Kernel, str], Awaitable[RunRecord]]

SAID = "has another structure here than the one that is stored as its version '1'"


def shop(*stage_ids: str, ran: list[str] | None = None) -> Workflow:
    """Stages in a row under version 1; `price` waits for a signal."""

    async def wait(ctx: StageContext[Any]) -> Any:
        await ctx.step.wait_for_signal("ok", timeout="1h")
        return await body(ctx)

    async def body(ctx: StageContext[Any]) -> Any:
        if ran is not None:
            ran.append(ctx.stage_id)
        return ctx.input

    builder = define_workflow("shop", input=Any)
    for stage_id in stage_ids:
        builder = builder.pipe(
            define_stage(stage_id, wait if stage_id == "price" else body, input=Any, output=Any)
        )
    return builder.version("1").build()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.message for line in caplog.records if line.levelno == logging.WARNING]


async def suspended(kernel: Kernel) -> str:
    """A run whose first stage waits for its signal."""
    run_id = (await kernel.dispatch(CreateRun("shop", 5))).run_id
    await kernel.dispatch(ClaimPendingRuns("w"))
    (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    await run_job(kernel, job)
    (stage,) = await kernel.runs.stages(run_id)
    assert stage.status is Status.SUSPENDED
    return run_id


@pytest.mark.guarantee("kernel.reused-versions-are-left-alone")
async def test_a_run_that_waits_is_ended_by_the_build_that_has_its_structure(
    open_store: OpenStore, beside: Beside, ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    old = await open_store(shop("price", "charge", ran=ran))
    run_id = await suspended(old)
    new = beside(old, shop("price", "discount", "charge", ran=ran))
    await new.dispatch(SignalStep(run_id, "price", "ok"))

    for _ in range(2):
        assert (await new.dispatch(PollSuspendedStages())).checked == 0
        assert (await new.dispatch(ClaimJobs("new", limit=9))).jobs == ()
        assert (await new.dispatch(TransitionRun(run_id))).action == "noop"
        assert (await new.dispatch(ReapStuckRuns(0))).failed == 0
    (waiting,) = (await new.dispatch(ListVersions())).unserved_here
    assert (waiting.workflow_id, waiting.definition_version, waiting.active) == ("shop", "1", 1)
    assert new.served_definitions() == ()
    assert ran == []
    assert [SAID in line for line in warnings(caplog)] == [True]
    for kept in await old.ports.job_transport.get_jobs_by_run(run_id):
        assert (kept.status, kept.failures, kept.worker_losses, kept.interruptions) == (
            Status.PENDING,
            0,
            0,
            0,
        )

    while (await ended_or_none(old, run_id)) is None:
        for job in (await old.dispatch(ClaimJobs("old"))).jobs:
            await run_job(old, job)
    assert (await ended(old, run_id)).status is Status.COMPLETED
    assert ran == ["price", "charge"]
    assert (await old.dispatch(ListVersions())).unserved_here == ()


async def ended_or_none(kernel: Kernel, run_id: str) -> Status | None:
    status = await kernel.ports.persistence.get_run_status(run_id)
    return None if status in (Status.PENDING, Status.RUNNING) else status


@pytest.mark.guarantee("kernel.reused-versions-are-left-alone")
async def test_a_run_that_nobody_claimed_stays_pending(open_store: OpenStore, beside: Beside) -> None:
    old = await open_store(shop("charge"))
    run_id = (await old.dispatch(CreateRun("shop", 5))).run_id
    new = beside(old, shop("discount", "charge"))
    for serves in (None, "all", new.served_definitions()):
        assert (await new.dispatch(ClaimPendingRuns("new", serves=serves))).claimed == ()
        run = await old.runs.get(run_id)
        assert run is not None
        assert (run.status, run.started_at) == (Status.PENDING, None)
        assert await old.runs.stages(run_id) == []
    (claimed,) = (await old.dispatch(ClaimPendingRuns("old"))).claimed
    assert claimed.run_id == run_id
    (job,) = (await old.dispatch(ClaimJobs("old"))).jobs
    assert (await run_job(old, job)).outcome == "completed"


@pytest.mark.guarantee("kernel.reused-versions-are-left-alone")
async def test_a_delivered_job_is_a_ghost_that_spends_nothing(open_store: OpenStore, beside: Beside) -> None:
    old = await open_store(shop("charge"))
    run_id = (await old.dispatch(CreateRun("shop", 5))).run_id
    await old.dispatch(ClaimPendingRuns("old"))
    new = beside(old, shop("charge", "ship"))
    # Who takes everything is handed the job; it is the execution that refuses it.
    (job,) = (await new.dispatch(ClaimJobs("new", serves="all"))).jobs
    before = await old.runs.stages(run_id)
    result = await new.dispatch(ExecuteJob(run_id, "shop", "charge", job=JobRef(job.job_id, job.fence)))
    assert (result.ghost, result.ghost_reason) == (True, "version")
    assert result.error is not None
    assert "stored with another structure than this build has" in result.error.message
    assert await old.runs.stages(run_id) == before
    await run_job(new, job)
    (stored,) = await old.ports.job_transport.get_jobs_by_run(run_id)
    assert (stored.status, stored.failures, stored.worker_losses) == (Status.PENDING, 0, 0)


async def test_other_workflows_are_claimed_beside_it(open_store: OpenStore, beside: Beside) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        return ctx.input

    other = define_workflow("other", input=Any).pipe(define_stage("s", body, input=Any, output=Any)).build()
    old = await open_store(shop("charge"), other)
    new = beside(old, shop("discount", "charge"), other)
    for id in ("shop", "other"):
        await old.dispatch(CreateRun(id, 1))
    await old.dispatch(ClaimPendingRuns("old"))
    (job,) = (await new.dispatch(ClaimJobs("new", limit=9))).jobs
    assert job.workflow_id == "other"
    (waiting,) = await old.ports.job_transport.get_jobs_by_run(
        (await old.dispatch(ClaimJobs("old"))).jobs[0].run_id
    )
    assert waiting.deliveries == 1, "the claim that met it was taken back"


@pytest.mark.guarantee("redrives.pin-anew-only-when-asked")
async def test_a_redrive_is_refused_in_a_version_that_has_another_structure(
    open_store: OpenStore, beside: Beside
) -> None:
    old = await open_store(shop("charge"))
    run_id = (await old.dispatch(CreateRun("shop", 5))).run_id
    await old.dispatch(ClaimPendingRuns("old"))
    (job,) = (await old.dispatch(ClaimJobs("old"))).jobs
    await run_job(old, job)
    new = beside(old, shop("charge", "ship"))
    for version in (None, "1", "latest"):
        redrive = RedriveRun(run_id, from_=FromStage("charge"), definition_version=version)
        with pytest.raises(DefinitionVersionConflictError):
            await new.dispatch(redrive)
    assert (await old.dispatch(RedriveRun(run_id, from_=FromStage("charge")))).redrive_count == 1


@pytest.mark.guarantee("kernel.reused-versions-are-left-alone")
async def test_a_batch_is_not_checked_by_another_structure(open_store: OpenStore, beside: Beside) -> None:
    checked: list[str] = []

    def batches(name: str, *after: str) -> Workflow:
        async def submit(ctx: StageContext[Any]) -> Suspend:
            return Suspend(state=None, poll_interval="1ms")

        async def check(state: Any, ctx: StageContext[Any]) -> NotReady:
            checked.append(name)
            return NotReady()

        async def body(ctx: StageContext[Any]) -> Any:
            return ctx.input

        stage = define_stage("b", submit, mode="async-batch", check_completion=check, input=Any, output=Any)
        builder = define_workflow("batch", input=Any).pipe(stage)
        for stage_id in after:
            builder = builder.pipe(define_stage(stage_id, body, input=Any, output=Any))
        return builder.version("1").build()

    old = await open_store(batches("old"))
    await old.dispatch(CreateRun("batch", 1))
    await old.dispatch(ClaimPendingRuns("old"))
    (job,) = (await old.dispatch(ClaimJobs("old"))).jobs
    await run_job(old, job)
    new = beside(old, batches("new", "more"))
    await asyncio.sleep(0.01)
    for serves in (None, "all"):
        assert (await new.dispatch(PollSuspendedStages(serves=serves))).checked == 0
    assert (await old.dispatch(PollSuspendedStages())).checked == 1
    assert checked == ["old"]


async def test_a_version_is_read_once_by_each_kernel(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = await open_store(shop("charge", "ship"))
    store = type(kernel.ports.persistence)
    get_definition, read = store.get_definition, []

    async def noted(self: Any, workflow_id: str, version: str) -> Any:
        read.append(version)
        return await get_definition(self, workflow_id, version)

    for number in range(3):
        await kernel.dispatch(CreateRun("shop", number))
    monkeypatch.setattr(store, "get_definition", noted)
    for _ in range(3):
        await kernel.dispatch(ClaimPendingRuns("w", max_claims=1))
        for _ in range(2):
            (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
            await run_job(kernel, job)
    assert read == ["1"]


@pytest.mark.guarantee("hosts.unserved-runs-are-told")
async def test_a_host_says_that_such_runs_wait(
    open_store: OpenStore, beside: Beside, eventually: Eventually, ended: Ended
) -> None:
    ran: list[str] = []
    old = await open_store(shop("charge", ran=ran))
    run_id = (await old.dispatch(CreateRun("shop", 5))).run_id
    new = beside(old, shop("discount", "charge", ran=ran))
    options: dict[str, Any] = {
        "orchestration_interval": "50ms",
        "poll_interval": "20ms",
        "handle_signals": False,
    }

    async def is_told() -> bool:
        return any("not served here" in line for line in host.health().degraded)

    async with NodeHost(new, worker_id="new", **options) as host:
        await eventually(is_told)
        assert await old.ports.persistence.get_run_status(run_id) is Status.PENDING
    async with NodeHost(old, worker_id="old", **options):
        await eventually(lambda: ended_or_none(old, run_id))
    assert (await ended(old, run_id)).status is Status.COMPLETED
    assert ran == ["charge"]
