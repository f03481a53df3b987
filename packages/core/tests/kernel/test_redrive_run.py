"""Setting ended runs going again: from where, with which records, attempts, jobs, versions and archive."""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from decimal import Decimal
from typing import Any

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    StageContext,
    StageResult,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.annotations import Actor
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJobResult,
    FromStage,
    LastFailure,
    RedriveRun,
    RedriveRunResult,
    Start,
)
from stagewright.errors import (
    DefinitionVersionMismatchError,
    IdempotencyKeyReusedError,
    InvalidCommandError,
    RunNotFoundError,
    RunStateError,
    UnknownDefinitionVersionError,
    UnknownStageError,
    UnknownWorkflowError,
)
from stagewright.memory import InMemoryBlobStore, InMemoryPersistence
from stagewright.records import AnnotationQuery, AnnotationRecord, DequeuedJob, RunRecord, StoredStage
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

Ctx = StageContext[Any]
BOTH = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


class World:
    """What bodies do: each counts itself, and fails while its stage is among those that are broken."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.runs: Counter[str] = Counter()
        self.attempts: list[tuple[str, int]] = []

    async def __call__(self, ctx: Ctx) -> Any:
        self.runs[ctx.stage_id] += 1
        self.attempts.append((ctx.stage_id, ctx.attempt))
        await ctx.storage.save("kept", ctx.attempt)
        if ctx.stage_id in self.broken:
            raise NonRetryableError(f"{ctx.stage_id} is broken")
        output = f"{ctx.stage_id} {ctx.attempt}"
        return StageResult(output=output, metrics={"total_cost": "0.5", "total_tokens": 7})


def flow(world: World, *, version: str | None = None, last: str = "d") -> Workflow:
    """`a`, then `b` and `c` side by side, then `d`."""
    a, b, c, d = (define_stage(id, world.__call__, input=Any, output=Any) for id in ("a", "b", "c", last))
    builder = define_workflow("flow", input=Any).pipe(a).parallel(b, c).pipe(d)
    return (builder if version is None else builder.version(version)).build()


async def records(kernel: Kernel, run_id: str) -> dict[str, StoredStage]:
    stages = await kernel.ports.persistence.get_stages_by_run(run_id)
    return {stage.stage_id: stage for stage in stages}


async def archive(kernel: Kernel, run_id: str) -> list[AnnotationRecord]:
    query = AnnotationQuery(key="run.supersededAttempt")
    return await kernel.ports.persistence.list_annotations(run_id, query)


@pytest.fixture
def ended(make_kernel: MakeKernel, start_run: StartRun, finish: Finish) -> Callable[..., Any]:
    """`kernel, world, run_id = await ended("b")`: a run that has ended, FAILED if a stage is broken."""

    async def make(*broken: str, **arguments: Any) -> tuple[Kernel, World, str]:
        world = World(*broken)
        kernel = make_kernel(flow(world), **arguments)
        run_id = await start_run(kernel, input="in")
        await finish(kernel, run_id)
        world.broken.clear()
        return kernel, world, run_id

    return make


@BOTH
@pytest.mark.guarantee("redrives.from-the-failure-keep-what-is-done")
async def test_what_failed_is_opened_again_and_the_run_ends_well(
    ended: Any, finish: Finish, told: Told
) -> None:
    kernel, world, run_id = await ended("b")
    before = await records(kernel, run_id)
    assert {id: stage.status for id, stage in before.items()} == {
        "a": Status.COMPLETED,
        "b": Status.FAILED,
        "c": Status.COMPLETED,
    }
    result = await kernel.dispatch(RedriveRun(run_id))
    version = kernel.ports.workflow("flow").definition_version
    assert result == RedriveRunResult(run_id, "b", ("b",), 1, version)
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status, run.error, run.output, run.completed_at) == (Status.RUNNING, None, None, None)
    assert (run.duration, run.total_cost, run.total_tokens, run.redrive_count) == (None, Decimal(0), 0, 1)
    now = await records(kernel, run_id)
    assert (now["b"].id, now["b"].status, now["b"].attempt, now["b"].error) == (
        before["b"].id,
        Status.PENDING,
        2,
        None,
    )
    assert (now["a"], now["c"]) == (before["a"], before["c"])
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "d 1")
    assert run.total_tokens == 28
    assert world.runs == {"a": 1, "b": 2, "c": 1, "d": 1}
    events = await told(kernel, run_id)
    assert events.count("workflow:started") == 2
    assert [type for type in events if type in ("workflow:failed", "workflow:completed")] == [
        "workflow:failed",
        "workflow:completed",
    ]


@BOTH
@pytest.mark.guarantee("redrives.from-a-stage-execute-it-again")
async def test_a_named_stage_is_executed_again_with_all_that_follows_it(ended: Any, finish: Finish) -> None:
    kernel, world, run_id = await ended()
    before = await records(kernel, run_id)
    result = await kernel.dispatch(RedriveRun(run_id, from_=FromStage("c")))
    assert (result.from_stage_id, result.superseded_stages) == ("c", ("c", "d"))
    now = await records(kernel, run_id)
    assert now.keys() == {"a", "b", "c"}
    assert (now["a"], now["b"]) == (before["a"], before["b"])
    assert (now["c"].id, now["c"].attempt, now["c"].output, now["c"].metrics) == (before["c"].id, 2, None, {})
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "d 2")
    assert world.runs == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert (await records(kernel, run_id))["d"].id != before["d"].id


@BOTH
@pytest.mark.guarantee("redrives.from-the-start-keep-nothing")
async def test_a_run_begins_anew(ended: Any, finish: Finish, blob_store: InMemoryBlobStore) -> None:
    kernel, world, run_id = await ended()
    before = await records(kernel, run_id)
    blobs = [key async for key in blob_store.list(f"workflow-v2/flow/{run_id}/")]
    assert len(blobs) == 4
    result = await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert (result.from_stage_id, result.superseded_stages) == ("a", ("a", "b", "c", "d"))
    now = await records(kernel, run_id)
    assert now.keys() == {"a"}
    assert (now["a"].attempt, now["a"].id != before["a"].id) == (2, True)
    assert [key async for key in blob_store.list("workflow-v2/flow/")] == []
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "d 2")
    assert world.attempts[-4:-3] == [("a", 2)]
    assert Counter(world.attempts[-4:]) == Counter([("a", 2), ("b", 2), ("c", 2), ("d", 2)])
    assert len([key async for key in blob_store.list("workflow-v2/flow/")]) == 4


@pytest.mark.guarantee("redrives.attempts-only-rise")
async def test_the_attempt_of_a_stage_rises_through_every_redrive(ended: Any, finish: Finish) -> None:
    kernel, world, run_id = await ended("d")
    for origin in (LastFailure(), Start(), FromStage("b"), Start(), FromStage("d")):
        await kernel.dispatch(RedriveRun(run_id, from_=origin))
        await finish(kernel, run_id)
    assert [attempt for id, attempt in world.attempts if id == "d"] == [1, 2, 3, 4, 5, 6]
    assert [attempt for id, attempt in world.attempts if id == "b"] == [1, 2, 3, 4]
    assert [attempt for id, attempt in world.attempts if id == "c"] == [1, 2, 3]
    assert [attempt for id, attempt in world.attempts if id == "a"] == [1, 2, 3]


@BOTH
async def test_a_completed_run_is_redriven_from_its_last_stage(ended: Any, finish: Finish) -> None:
    kernel, world, run_id = await ended()
    result = await kernel.dispatch(RedriveRun(run_id))
    assert (result.from_stage_id, result.superseded_stages) == ("d", ("d",))
    assert (await finish(kernel, run_id)).output == "d 2"
    assert world.runs == {"a": 1, "b": 1, "c": 1, "d": 2}


@BOTH
async def test_a_cancelled_run_goes_on_where_it_was_cancelled(
    make_kernel: MakeKernel, start_run: StartRun, take_job: TakeJob, execute: Execute, finish: Finish
) -> None:
    world = World()
    kernel = make_kernel(flow(world))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    result = await kernel.dispatch(RedriveRun(run_id))
    assert (result.from_stage_id, result.superseded_stages) == ("b", ("b", "c"))
    run = await finish(kernel, run_id)
    assert (run.status, world.runs) == (Status.COMPLETED, {"a": 1, "b": 1, "c": 1, "d": 1})


async def test_a_run_that_was_cancelled_before_its_claim_can_only_be_started(
    make_kernel: MakeKernel, finish: Finish
) -> None:
    world = World()
    kernel = make_kernel(flow(world))
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    await kernel.dispatch(CancelRun(run_id))
    with pytest.raises(RunStateError, match=r"redrive it from Start\(\)"):
        await kernel.dispatch(RedriveRun(run_id))
    result = await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert (result.from_stage_id, result.superseded_stages, result.redrive_count) == ("a", (), 1)
    assert (await kernel.dispatch(ClaimPendingRuns("w"))).claimed == ()
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


@BOTH
@pytest.mark.guarantee("redrives.superseded-attempts-are-archived")
async def test_every_superseded_attempt_stays_on_record(ended: Any, finish: Finish, clock: FakeClock) -> None:
    kernel, _world, run_id = await ended("b")
    before = await records(kernel, run_id)
    await kernel.dispatch(RedriveRun(run_id))
    (kept,) = await archive(kernel, run_id)
    failed = before["b"]
    assert failed.started_at is not None
    assert failed.completed_at is not None
    assert failed.duration is not None
    assert (kept.value, kept.scope, kept.scope_id, kept.attempt) == ("FAILED", "stage", "b", 1)
    assert kept.actor == Actor(kind="engine", id="run.redrive")
    assert (kept.stage_record_id, kept.idempotency_key) == (failed.id, f"run.supersededAttempt:{failed.id}:1")
    assert kept.payload == {
        "redrive_count": 1,
        "definition_version": kernel.ports.workflow("flow").definition_version,
        "stage_record_id": failed.id,
        "stage_number": 2,
        "execution_group": 2,
        "attempt": 1,
        "status": "FAILED",
        "error_message": "NonRetryableError: b is broken",
        "started_at": failed.started_at.isoformat(),
        "completed_at": failed.completed_at.isoformat(),
        "duration": failed.duration.total_seconds(),
        "metrics": {},
        "output": None,
        "output_claim": None,
        "artifacts": {},
        "reopened": True,
    }
    await finish(kernel, run_id)
    await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    rows = (await archive(kernel, run_id))[1:]
    assert [(row.scope_id, row.attempt, row.value) for row in rows] == [
        ("a", 1, "COMPLETED"),
        ("b", 2, "COMPLETED"),
        ("c", 1, "COMPLETED"),
        ("d", 1, "COMPLETED"),
    ]
    assert [row.stage_record_id for row in rows] == [None] * 4, "the records are gone, the archive stays"
    payloads = [row.payload for row in rows if isinstance(row.payload, dict)]
    assert [payload["output"] for payload in payloads] == ["a 1", "b 2", "c 1", "d 1"]
    assert [payload["reopened"] for payload in payloads] == [False] * 4


@pytest.mark.guarantee("kernel.one-transaction-per-command")
@BOTH
async def test_a_redrive_that_fails_at_any_call_changes_nothing(
    ended: Any,
    contents: Callable[[], dict[str, object]],
    fail_at: Callable[..., None],
    forget_cues: Callable[[], None],
    finish: Finish,
    moments: list[str],
) -> None:
    kernel, _world, run_id = await ended()
    before = contents()
    start = len(moments)
    fail_at("commit", error=OSError("the disk is gone"))
    with pytest.raises(OSError, match="the disk is gone"):
        await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    calls = len(moments) - start
    for nth in range(1, calls):
        forget_cues()
        fail_at("*", nth=nth, error=KeyboardInterrupt())
        try:
            await kernel.dispatch(RedriveRun(run_id, from_=Start()))
        except KeyboardInterrupt:
            assert contents() == before, f"call {nth}"
        else:
            raise AssertionError(f"call {nth} was never made")
    forget_cues()
    await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


# Refusals


async def test_only_what_has_ended_is_redriven(
    make_kernel: MakeKernel, contents: Callable[[], object]
) -> None:
    kernel = make_kernel(flow(World()))
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    before = contents()
    with pytest.raises(RunStateError, match="is PENDING, and this needs COMPLETED, FAILED or CANCELLED"):
        await kernel.dispatch(RedriveRun(run_id))
    assert contents() == before
    await kernel.dispatch(ClaimPendingRuns("w"))
    before = contents()
    with pytest.raises(RunStateError, match="is RUNNING"):
        await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert contents() == before
    with pytest.raises(RunNotFoundError):
        await kernel.dispatch(RedriveRun("nobody"))


async def test_a_stage_can_be_redriven_only_when_all_before_it_is_done(
    ended: Any, contents: Callable[[], object]
) -> None:
    kernel, _world, run_id = await ended("b")
    before = contents()
    with pytest.raises(RunStateError, match="stage 'b' is FAILED; redrive it from there"):
        await kernel.dispatch(RedriveRun(run_id, from_=FromStage("d")))
    with pytest.raises(UnknownStageError, match="has no stage 'z'"):
        await kernel.dispatch(RedriveRun(run_id, from_=FromStage("z")))
    assert contents() == before


@pytest.mark.parametrize(
    ("origin", "problem"),
    [
        ({"kind": "stage"}, r"\$\.from\.stage_id: Field required"),
        ({"kind": "first"}, r"\$\.from: Input tag 'first'"),
        ("start", r"\$\.from: "),
        (None, r"\$\.from: "),
        ({"kind": "start", "stage_id": "a"}, r"\$\.from\.stage_id: Unexpected"),
        ({}, r"\$\.from"),
    ],
)
async def test_a_malformed_origin_is_never_taken_for_another(
    ended: Any, contents: Callable[[], object], origin: object, problem: str
) -> None:
    kernel, _world, run_id = await ended()
    before = contents()
    with pytest.raises(InvalidCommandError, match=problem):
        await kernel.dispatch({"type": "run.redrive", "run_id": run_id, "from": origin})
    with pytest.raises(InvalidCommandError, match="definition_version"):
        await kernel.dispatch({"type": "run.redrive", "run_id": run_id, "definition_version": ""})
    assert contents() == before


async def test_a_dict_does_the_same(ended: Any) -> None:
    kernel, _world, run_id = await ended()
    command = {"type": "run.redrive", "run_id": run_id, "from": {"kind": "stage", "stage_id": "b"}}
    result = await kernel.dispatch(command)
    assert isinstance(result, RedriveRunResult)
    assert result.superseded_stages == ("b", "d")


# Versions


@pytest.mark.guarantee("redrives.pin-anew-only-when-asked")
async def test_a_run_is_pinned_anew_on_request(ended: Any, make_kernel: MakeKernel, finish: Finish) -> None:
    kernel, _, run_id = await ended("b")
    old = kernel.ports.workflow("flow").definition_version
    world = World()
    newer = make_kernel(flow(world, version="2", last="e"))
    with pytest.raises(DefinitionVersionMismatchError):
        await newer.dispatch(RedriveRun(run_id))
    with pytest.raises(UnknownDefinitionVersionError, match="'2'"):
        await newer.dispatch(RedriveRun(run_id, definition_version="2"))
    with pytest.raises(DefinitionVersionMismatchError):
        await newer.dispatch(RedriveRun(run_id, definition_version=old))
    result = await newer.dispatch(RedriveRun(run_id, definition_version="latest"))
    assert result.definition_version == "2"
    assert await newer.ports.persistence.get_definition("flow", "2") is not None
    assert (await kernel.dispatch(ClaimJobs("old"))).jobs == ()
    run = await finish(newer, run_id)
    assert (run.status, run.output, run.definition_version) == (Status.COMPLETED, "e 1", "2")
    (kept,) = await archive(newer, run_id)
    assert isinstance(kept.payload, dict)
    assert kept.payload["definition_version"] == old
    again = await newer.dispatch(RedriveRun(run_id, definition_version="2"))
    assert (again.from_stage_id, again.redrive_count) == ("e", 2)


async def test_stages_take_the_places_that_the_new_version_gives_them(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish
) -> None:
    world = World("c")
    options: dict[str, Any] = {"input": Any, "output": Any}
    first = define_workflow("flow", input=Any)
    for id in ("a", "b", "c", "x"):
        first = first.stage(id, world.__call__, **options)
    kernel = make_kernel(first.build())
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    world.broken.clear()
    before = await records(kernel, run_id)
    second = define_workflow("flow", input=Any)
    for id in ("b", "a", "new", "c"):
        second = second.stage(id, world.__call__, **options)
    kernel = make_kernel(second.build())
    with pytest.raises(RunStateError, match="stage 'new' was never begun"):
        await kernel.dispatch(RedriveRun(run_id, definition_version="latest"))
    third = define_workflow("flow", input=Any)
    for id in ("b", "c", "y"):
        third = third.stage(id, world.__call__, **options)
    kernel = make_kernel(third.build())
    await kernel.dispatch(RedriveRun(run_id, definition_version="latest"))
    now = await records(kernel, run_id)
    assert (now["b"].execution_group, now["b"].stage_number, now["b"].status) == (1, 1, Status.COMPLETED)
    assert (now["c"].id, now["c"].execution_group, now["c"].attempt) == (before["c"].id, 2, 2)
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "y 1")
    assert world.runs == {"a": 1, "b": 1, "c": 2, "y": 1}


@BOTH
@pytest.mark.guarantee("redrives.attempts-only-rise")
async def test_a_stage_that_is_new_in_a_version_begins_with_its_first_attempt(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish
) -> None:
    world = World("b")
    options: dict[str, Any] = {"input": Any, "output": Any}
    a, b, new = (define_stage(id, world.__call__, **options) for id in ("a", "b", "new"))
    kernel = make_kernel(define_workflow("flow", input=Any).pipe(a).pipe(b).build())
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    world.broken.clear()
    kernel = make_kernel(define_workflow("flow", input=Any).pipe(a).parallel(b, new).build())
    await kernel.dispatch(RedriveRun(run_id, definition_version="latest"))
    now = await records(kernel, run_id)
    assert {id: (stage.status, stage.attempt) for id, stage in now.items()} == {
        "a": (Status.COMPLETED, 1),
        "b": (Status.PENDING, 2),
        "new": (Status.PENDING, 1),
    }
    assert (await finish(kernel, run_id)).output == {"b": "b 2", "new": "new 1"}
    await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert (await finish(kernel, run_id)).output == {"b": "b 3", "new": "new 2"}


async def test_a_workflow_that_is_not_registered_here_is_named(ended: Any, make_kernel: MakeKernel) -> None:
    _kernel, _world, run_id = await ended()
    with pytest.raises(UnknownWorkflowError):
        await make_kernel().dispatch(RedriveRun(run_id))


# Keys


@pytest.mark.guarantee("kernel.a-key-makes-it-once")
async def test_a_repeated_redrive_gets_the_first_answer(ended: Any, finish: Finish) -> None:
    kernel, world, run_id = await ended("b")
    command = RedriveRun(run_id, from_=LastFailure(), idempotency_key="again")
    first = await kernel.dispatch(command)
    assert await kernel.dispatch(command) == first
    await finish(kernel, run_id)
    assert await kernel.dispatch(command) == first
    with pytest.raises(IdempotencyKeyReusedError):
        await kernel.dispatch(RedriveRun(run_id, from_=Start(), idempotency_key="again"))
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.redrive_count == 1
    assert world.runs["b"] == 2


@pytest.mark.guarantee("kernel.a-failure-frees-its-key")
async def test_a_refused_redrive_keeps_no_key(
    ended: Any, persistence: InMemoryPersistence, finish: Finish
) -> None:
    kernel, _world, run_id = await ended()
    await kernel.dispatch(RedriveRun(run_id))
    command = RedriveRun(run_id, idempotency_key="later")
    with pytest.raises(RunStateError):
        await kernel.dispatch(command)
    await finish(kernel, run_id)
    assert (await kernel.dispatch(command)).redrive_count == 2
