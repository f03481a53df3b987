"""One transaction per command: all of it or nothing, events after the commit, conflicts tried again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.commands import (
    AnnotationInput,
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    Command,
    CreateRun,
    ExecuteJob,
    FlushOutbox,
    JobRef,
    TransitionRun,
)
from stagewright.errors import (
    AfterCommitError,
    DeadlockError,
    OutcomeUnknownError,
    StaleVersionError,
    TransientError,
)
from stagewright.memory import InMemoryJobTransport, InMemoryPersistence
from stagewright.records import DequeuedJob
from stagewright.status import Status
from stagewright.testing import CollectingEventSink

MakeKernel = Callable[..., Kernel]
StartRun = Callable[..., Awaitable[str]]
Contents = Callable[[], dict[str, object]]
FailAt = Callable[..., None]


class CrashError(BaseException):
    """Nobody may catch this: the process is gone."""


async def echo(ctx: StageContext[Any]) -> Any:
    ctx.annotate("seen", True, emit_event=True)
    ctx.progress(50)
    ctx.log("info", "echoing")
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: Callable[..., Workflow]) -> Kernel:
    return make_kernel(flow_of(echo, echo))


async def crash_everywhere(
    kernel: Kernel,
    command: Command[Any],
    contents: Contents,
    fail_at: FailAt,
    moments: list[str],
    forget: Callable[[], None],
) -> list[str]:
    """Let the command crash at one call after the other; say where it did without leaving a trace."""
    crashed: list[str] = []
    for nth in range(1, 200):
        before = contents()
        fail_at("*", nth=nth, error=CrashError())
        try:
            await kernel.dispatch(command)
        except CrashError:
            if moments[-1] == "committed":
                return crashed
            assert contents() == before, f"a crash at {moments[-1]} left something"
            crashed.append(moments[-1])
        finally:
            forget()
    raise AssertionError("the command never commits")


@pytest.mark.guarantee("kernel.one-transaction-per-command")
async def test_a_crash_at_any_call_of_create_run_leaves_nothing(
    kernel: Kernel, contents: Contents, fail_at: FailAt, moments: list[str], forget_cues: Callable[[], None]
) -> None:
    annotation = AnnotationInput(attributes={"a": 1}, emit_event=True)
    command = CreateRun("flow", 1, idempotency_key="k", annotations=(annotation,))
    crashed = await crash_everywhere(kernel, command, contents, fail_at, moments, forget_cues)
    assert {"create_run", "append_annotations", "append_outbox_events", "commit"} <= set(crashed)


async def test_a_crash_at_any_call_of_the_claims_leaves_nothing(
    kernel: Kernel, contents: Contents, fail_at: FailAt, moments: list[str], forget_cues: Callable[[], None]
) -> None:
    for _ in range(2):
        await kernel.dispatch(CreateRun("flow", 1))
    crashed = await crash_everywhere(kernel, ClaimPendingRuns("w"), contents, fail_at, moments, forget_cues)
    assert {"claim_pending_runs", "create_stage", "enqueue_parallel", "append_outbox_events"} <= set(crashed)
    crashed = await crash_everywhere(kernel, ClaimJobs("w", limit=2), contents, fail_at, moments, forget_cues)
    assert {"dequeue", "load_runs", "update_stage", "append_outbox_events"} <= set(crashed)


async def test_a_crash_at_any_call_of_cancel_run_leaves_nothing(
    kernel: Kernel,
    start_run: StartRun,
    contents: Contents,
    fail_at: FailAt,
    moments: list[str],
    forget_cues: Callable[[], None],
) -> None:
    command = CancelRun(await start_run(kernel), reason="enough")
    crashed = await crash_everywhere(kernel, command, contents, fail_at, moments, forget_cues)
    assert {"update_run", "update_stage", "cancel_by_run", "append_outbox_events"} <= set(crashed)


async def test_a_crash_in_the_transaction_of_an_outcome_leaves_the_stage_running(
    kernel: Kernel,
    start_run: StartRun,
    take_job: Callable[[Kernel], Awaitable[DequeuedJob]],
    contents: Contents,
    fail_at: FailAt,
    moments: list[str],
    forget_cues: Callable[[], None],
) -> None:
    run_id = await start_run(kernel, 5)
    job = await take_job(kernel)
    command = ExecuteJob(run_id, "flow", "s1", job=JobRef(job.job_id, job.fence))
    crashed = await crash_everywhere(kernel, command, contents, fail_at, moments, forget_cues)
    written = {
        "complete",
        "update_stage",
        "append_annotations",
        "append_logs",
        "create_stage",
        "enqueue_parallel",
    }
    assert written <= set(crashed)
    stages = {stage.stage_id: stage.status for stage in await kernel.runs.stages(run_id)}
    assert stages == {"s1": Status.COMPLETED, "s2": Status.PENDING}


async def test_a_lost_commit_reply_is_an_error_to_the_caller_and_the_state_stands(
    kernel: Kernel, fail_at: FailAt
) -> None:
    fail_at("committed", error=OutcomeUnknownError("connection lost"))
    with pytest.raises(OutcomeUnknownError):
        await kernel.dispatch(CreateRun("flow", 1, idempotency_key="k"))
    (run,) = (await kernel.runs.list()).items
    again = await kernel.dispatch(CreateRun("flow", 1, idempotency_key="k"))
    assert again.run_id == run.id
    assert len((await kernel.runs.list()).items) == 1


# Events


@pytest.mark.guarantee("events.nothing-before-the-commit")
async def test_no_event_is_there_before_its_transaction_has_committed(
    kernel: Kernel, sink: CollectingEventSink, hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]]
) -> None:
    reached, go = hold_at("commit")
    creating = asyncio.create_task(kernel.dispatch(CreateRun("flow")))
    await reached.wait()
    await kernel.dispatch(FlushOutbox())
    assert sink.events == []
    go.set()
    run_id = (await creating).run_id
    assert sink.events == []
    await kernel.dispatch(FlushOutbox())
    assert sink.types(run_id) == ["workflow:created"]


async def test_a_command_that_fails_leaves_no_event(
    kernel: Kernel, sink: CollectingEventSink, fail_at: FailAt
) -> None:
    fail_at("commit", error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await kernel.dispatch(CreateRun("flow"))
    assert (await kernel.dispatch(FlushOutbox())).published == 0
    assert sink.events == []


@pytest.mark.guarantee("kernel.events-share-their-cause")
async def test_all_events_of_a_dispatch_share_their_cause(kernel: Kernel, start_run: StartRun) -> None:
    annotation = AnnotationInput(attributes={"a": 1}, emit_event=True)
    created = await kernel.dispatch(CreateRun("flow", idempotency_key="the-key", annotations=(annotation,)))
    other = await start_run(kernel)
    causes = {event.causation_id for event in await kernel.runs.events(created.run_id) if event.sequence < 3}
    assert causes == {"the-key"}
    by_dispatch = [event.causation_id for event in await kernel.runs.events(other)]
    assert len(set(by_dispatch)) == 2


# Conflicts


@pytest.mark.guarantee("kernel.conflicts-are-tried-again")
@pytest.mark.parametrize("conflict", [StaleVersionError("run", "r", 1, 2), DeadlockError("cycle")])
@pytest.mark.parametrize("moment", ["load_runs", "update_run", "commit"])
async def test_a_conflict_runs_the_handler_again(
    kernel: Kernel, start_run: StartRun, fail_at: FailAt, conflict: Exception, moment: str
) -> None:
    run_id = await start_run(kernel)
    fail_at(moment, times=2, error=conflict)
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    events = [event.type for event in await kernel.runs.events(run_id)]
    assert events.count("workflow:cancelled") == 1


async def test_after_three_tries_the_conflict_is_raised_and_nothing_kept(
    kernel: Kernel, start_run: StartRun, fail_at: FailAt, contents: Contents, moments: list[str]
) -> None:
    run_id = await start_run(kernel)
    before = contents()
    fail_at("commit", times=3, error=StaleVersionError("run", run_id, 1, 2))
    moments.clear()
    with pytest.raises(StaleVersionError):
        await kernel.dispatch(CancelRun(run_id))
    assert moments.count("begin") == 3
    assert contents() == before


async def test_a_deadlock_is_tried_again_more_often(
    kernel: Kernel, start_run: StartRun, fail_at: FailAt, moments: list[str]
) -> None:
    run_id = await start_run(kernel)
    fail_at("commit", times=7, error=DeadlockError("cycle"))
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    other = await start_run(kernel)
    fail_at("commit", times=8, error=DeadlockError("cycle"))
    moments.clear()
    with pytest.raises(DeadlockError):
        await kernel.dispatch(CancelRun(other))
    assert moments.count("begin") == 8


async def test_each_try_decides_anew(
    kernel: Kernel,
    persistence: InMemoryPersistence,
    hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]],
    start_run: StartRun,
    fail_at: FailAt,
) -> None:
    run_id = await start_run(kernel)
    reached, go = hold_at("begin", nth=2)
    fail_at("commit", error=StaleVersionError("run", run_id, 1, 2))
    first = asyncio.create_task(kernel.dispatch(CancelRun(run_id, reason="first")))
    await reached.wait()
    assert (await kernel.dispatch(CancelRun(run_id, reason="second"))).cancelled
    go.set()
    assert not (await first).cancelled


# After the commit


@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_what_fails_after_the_commit_does_not_undo_it(
    kernel: Kernel, transport: InMemoryJobTransport, persistence: InMemoryPersistence, fail_at: FailAt
) -> None:
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    fail_at("enqueue_parallel", error=ConnectionError("queue down"))
    with pytest.raises(AfterCommitError, match="queue down") as caught:
        await kernel.dispatch(ClaimPendingRuns("w"))
    assert (caught.value.total, len(caught.value.failures)) == (1, 1)
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.RUNNING
    (stage,) = await persistence.get_stages_by_run(run_id)
    assert stage.status is Status.PENDING
    assert stage.job_enqueued_at is None, "the job is owed"


@pytest.mark.guarantee("kernel.one-failed-enqueue-stops-no-other")
@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_one_run_whose_job_is_refused_does_not_stop_the_others(
    kernel: Kernel, transport: InMemoryJobTransport, persistence: InMemoryPersistence, fail_at: FailAt
) -> None:
    runs = [(await kernel.dispatch(CreateRun("flow"))).run_id for _ in range(3)]
    fail_at("enqueue_parallel", nth=2, error=ConnectionError("queue down"))
    with pytest.raises(AfterCommitError) as caught:
        await kernel.dispatch(ClaimPendingRuns("w"))
    assert (caught.value.total, len(caught.value.failures)) == (3, 1)
    assert [len(await transport.get_jobs_by_run(run_id)) for run_id in runs] == [1, 0, 1]
    owed = [
        stage.job_enqueued_at is None
        for run_id in runs
        for stage in await persistence.get_stages_by_run(run_id)
    ]
    assert owed == [False, True, False]


@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_no_job_is_enqueued_when_the_transaction_rolls_back(
    kernel: Kernel, transport: InMemoryJobTransport, fail_at: FailAt
) -> None:
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    fail_at("commit", error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await kernel.dispatch(ClaimPendingRuns("w"))
    assert await transport.get_jobs_by_run(run_id) == []


async def test_a_transition_committed_by_somebody_else_is_a_noop(kernel: Kernel, start_run: StartRun) -> None:
    run_id = await start_run(kernel)
    assert (await kernel.dispatch(TransitionRun(run_id))).action == "noop"


async def test_what_the_store_could_not_do_this_time_is_done_again(
    kernel: Kernel, fail_at: Callable[..., None]
) -> None:
    fail_at("commit", times=2, error=TransientError("the connection was lost before the commit"))
    created = await kernel.dispatch(CreateRun("flow", 1))
    assert await kernel.runs.get(created.run_id) is not None
    assert len((await kernel.runs.list()).items) == 1


async def test_a_store_that_never_can_is_told_after_three_tries(
    kernel: Kernel, fail_at: Callable[..., None]
) -> None:
    fail_at("commit", times=3, error=TransientError("the connection was lost before the commit"))
    with pytest.raises(TransientError):
        await kernel.dispatch(CreateRun("flow", 1))
    assert not (await kernel.runs.list()).items
