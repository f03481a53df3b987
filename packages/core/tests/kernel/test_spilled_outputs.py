"""Outputs above the spill threshold lie in the blob store, and nobody who reads them notices."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import (
    Kernel,
    RetryPolicy,
    StageContext,
    StageResult,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import ExecuteJob, ExecuteJobResult, JobRef, TransitionRun
from stagewright.errors import SpilledPayloadUnavailableError
from stagewright.memory import InMemoryBlobStore, InMemoryPersistence
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


async def keys(blob_store: InMemoryBlobStore) -> list[str]:
    return [key async for key in blob_store.list("")]


@pytest.mark.guarantee("kernel.large-outputs-spill")
@pytest.mark.parametrize(
    ("value", "size", "spilled"),
    [
        ("x" * 65_534, 65_536, False),
        ("x" * 65_535, 65_537, True),
        ("ü" * 32_767, 65_536, False),
        ("ü" * 32_768, 65_538, True),
    ],
)
async def test_the_limit_is_in_bytes_of_json_and_itself_inline(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    persistence: InMemoryPersistence,
    blob_store: InMemoryBlobStore,
    value: str,
    size: int,
    spilled: bool,
) -> None:
    kernel = make_kernel(flow_of(echo))
    run = await finish(kernel, await start_run(kernel, value))
    (stage,) = await persistence.get_stages_by_run(run.id)
    if spilled:
        assert stage.output is None
        assert stage.output_claim is not None
        assert stage.output_claim.size == size
        assert stage.output_claim.key.startswith(f"workflow-v2/flow/{run.id}/s1/output-")
        assert json.loads(await blob_store.get(stage.output_claim.key)) == value
    else:
        assert (stage.output, stage.output_claim) == (value, None)
        assert await keys(blob_store) == []
    assert run.output == value
    assert await kernel.runs.output_of(run.id, "s1") == value


@pytest.mark.parametrize(
    ("threshold", "blobs"), [(0, 2), (1e300, 0), (float("inf"), 0), (5.5, 2), (2**70, 0)]
)
async def test_thresholds_from_everything_to_nothing(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    blob_store: InMemoryBlobStore,
    threshold: float,
    blobs: int,
) -> None:
    kernel = make_kernel(flow_of(echo, echo), spill_threshold_bytes=threshold)
    run = await finish(kernel, await start_run(kernel, ["a", "b"]))
    assert run.output == ["a", "b"]
    assert len(await keys(blob_store)) == blobs


@pytest.mark.parametrize("threshold", [-1, float("nan"), float("-inf")])
def test_a_threshold_that_is_no_number_of_bytes_is_refused(
    make_kernel: MakeKernel, flow_of: FlowOf, threshold: float
) -> None:
    with pytest.raises(ValueError, match="spill_threshold_bytes"):
        make_kernel(flow_of(echo), spill_threshold_bytes=threshold)


async def test_later_stages_read_spilled_outputs_like_any_other(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish
) -> None:
    async def wide(ctx: StageContext[Any]) -> Any:
        return [ctx.stage_id, "x" * 50]

    async def collect(ctx: StageContext[Any]) -> Any:
        return [ctx.input, ctx.require("a"), sorted(ctx.outputs)]

    builder = define_workflow("flow", input=Any).stage("a", wide, input=Any, output=Any)
    siblings = [define_stage(name, wide, input=Any, output=Any) for name in ("b", "c")]
    workflow = builder.parallel(*siblings).stage("d", collect, input=Any, output=Any).build()
    kernel = make_kernel(workflow, spill_threshold_bytes=20)
    run = await finish(kernel, await start_run(kernel))
    x = "x" * 50
    assert run.output == [{"b": ["b", x], "c": ["c", x]}, ["a", x], ["a", "b", "c"]]


async def test_a_run_completes_when_a_siblings_spilled_output_has_to_be_fetched(
    make_kernel: MakeKernel, start_run: StartRun, take_job: TakeJob, execute: Execute, moments: list[str]
) -> None:
    siblings = [define_stage(name, echo, input=Any, output=Any) for name in ("a", "b", "c")]
    kernel = make_kernel(
        define_workflow("flow", input=Any).parallel(*siblings).build(), spill_threshold_bytes=10
    )
    run_id = await start_run(kernel, "x" * 100)
    for _ in siblings:
        moments.clear()
        await execute(kernel, await take_job(kernel))
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.output == dict.fromkeys("abc", "x" * 100)
    assert "blob_store.get" in moments
    for position in [index for index, moment in enumerate(moments) if moment == "blob_store.get"]:
        before = [moment for moment in moments[:position] if moment in ("begin", "commit", "update_run")]
        assert before[-1] != "update_run", "fetched in a transaction that has written"


async def test_an_artifact_always_lies_in_the_blob_store(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    blob_store: InMemoryBlobStore,
) -> None:
    async def body(ctx: StageContext[Any]) -> StageResult[int]:
        return StageResult(output=1, artifacts={"small": 1})

    kernel = make_kernel(flow_of(body), spill_threshold_bytes=float("inf"))
    await finish(kernel, await start_run(kernel))
    assert len(await keys(blob_store)) == 1


async def test_user_data_that_looks_like_a_reference_is_just_data(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    lookalike = {"$wfSpill": 1, "key": "workflow-v2/x", "bytes": 3, "_artifactKey": "k"}
    kernel = make_kernel(flow_of(echo, echo))
    assert (await finish(kernel, await start_run(kernel, lookalike))).output == lookalike


# Blobs that can't be had


async def remove_all(blob_store: InMemoryBlobStore) -> dict[str, bytes]:
    blobs = {key: await blob_store.get(key) for key in await keys(blob_store)}
    await blob_store.delete_many(list(blobs))
    return blobs


@pytest.mark.guarantee("kernel.a-missing-blob-is-named")
async def test_an_input_whose_blob_is_missing_fails_the_stage_retryably_naming_the_key(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
    blob_store: InMemoryBlobStore,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(flow_of(echo, echo, retry=RetryPolicy(3)), spill_threshold_bytes=10)
    run_id = await start_run(kernel, "x" * 100)
    await execute(kernel, await take_job(kernel))
    (key,) = blobs = await remove_all(blob_store)
    result = await execute(kernel, await take_job(kernel))
    assert (result.outcome, result.will_retry) == ("failed", True)
    assert result.error is not None
    assert (result.error.code, result.error.stage_id) == ("INPUT_UNAVAILABLE", "s2")
    assert key in result.error.message
    assert "same blob store" in result.error.message
    await blob_store.put(key, blobs[key])
    assert (await finish(kernel, run_id)).output == "x" * 100


@pytest.mark.parametrize("damage", [b"", b'"cut', b"not json" + b"x" * 94])
async def test_a_damaged_blob_is_as_bad_as_none(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    blob_store: InMemoryBlobStore,
    damage: bytes,
) -> None:
    kernel = make_kernel(flow_of(echo, echo), spill_threshold_bytes=10)
    run_id = await start_run(kernel, "x" * 100)
    await execute(kernel, await take_job(kernel))
    (key,) = await keys(blob_store)
    await blob_store.put(key, damage)
    assert (await execute(kernel, await take_job(kernel))).outcome == "failed"
    with pytest.raises(SpilledPayloadUnavailableError, match=key):
        await kernel.runs.output_of(run_id, "s1")


async def test_an_outcome_is_recorded_even_if_a_siblings_output_can_not_be_read(
    make_kernel: MakeKernel, start_run: StartRun, take_job: TakeJob, blob_store: InMemoryBlobStore
) -> None:
    siblings = [define_stage(name, echo, input=Any, output=Any) for name in ("a", "b")]
    kernel = make_kernel(
        define_workflow("flow", input=Any).parallel(*siblings).build(), spill_threshold_bytes=10
    )
    run_id = await start_run(kernel, "x" * 100)
    blobs: dict[str, bytes] = {}
    for _ in siblings:
        blobs = blobs | await remove_all(blob_store)
        job = await take_job(kernel)
        result = await kernel.dispatch(
            ExecuteJob(run_id, "flow", job.stage_id, job=JobRef(job.job_id, job.fence))
        )
        assert (result.outcome, result.output) == ("completed", "x" * 100)
    assert {stage.status for stage in await kernel.runs.stages(run_id)} == {Status.COMPLETED}
    with pytest.raises(SpilledPayloadUnavailableError):
        await kernel.dispatch(TransitionRun(run_id))
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.RUNNING
    for key, data in blobs.items():
        await blob_store.put(key, data)
    assert (await kernel.dispatch(TransitionRun(run_id))).action == "completed"


async def test_a_blob_store_that_fails_is_nobodys_failure(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    fail_at: Callable[..., None],
) -> None:
    kernel = make_kernel(flow_of(echo), spill_threshold_bytes=10)
    run_id = await start_run(kernel, "x" * 100)
    job = await take_job(kernel)
    fail_at("blob_store.put", error=ConnectionError("bucket gone"))
    with pytest.raises(ConnectionError):
        await execute(kernel, job)
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.error) == (Status.RUNNING, None)


async def test_an_answer_from_the_store_reads_the_spilled_output_again(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    kernel = make_kernel(flow_of(echo, echo), spill_threshold_bytes=10)
    await start_run(kernel, "x" * 100)
    job = await take_job(kernel)
    assert await execute(kernel, job) == await execute(kernel, job)


async def test_many_spilled_outputs_of_the_last_group_are_fetched_together(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish, moments: list[str]
) -> None:
    members = [define_stage(f"m{number}", echo, input=Any, output=Any) for number in range(12)]
    kernel = make_kernel(
        define_workflow("flow", input=Any).parallel(*members).build(), spill_threshold_bytes=4
    )
    run_id = await start_run(kernel, "long enough")
    before = len(moments)
    run = await finish(kernel, run_id)
    assert run.output == {member.id: "long enough" for member in members}
    # Each stage takes two transactions, and the last outcome one more, whatever the number of outputs.
    assert moments[before:].count("begin") < 60
