"""Payloads of jobs above the spill threshold: claim checks in the queue, whole again for whoever claims the job."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import Kernel, RetryPolicy, StageContext, Status, define_stage, define_workflow
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun, ExecuteJobResult
from stagewright.errors import SpilledPayloadUnavailableError
from stagewright.hosting import unpack_payload
from stagewright.json_values import Json
from stagewright.memory import InMemoryBlobStore, InMemoryJobTransport
from stagewright.records import DequeuedJob, NewJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Statuses = Callable[[Kernel, str], Awaitable[dict[str, Status]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)

RETRY = RetryPolicy(2, delay=0)


class Config(BaseModel):
    text: str = ""
    data: Any = None


async def length(ctx: StageContext[Any, Config]) -> int:
    return len(ctx.config.text)


LENGTH = define_stage("s1", length, input=Any, output=Any, config=Config, retry=RETRY)


@pytest.fixture
def kernel(make_kernel: MakeKernel) -> Kernel:
    return make_kernel(define_workflow("flow", input=Any).pipe(LENGTH).build(), spill_threshold_bytes=200)


async def start(kernel: Kernel, *configs: dict[str, Any]) -> list[str]:
    runs = [(await kernel.dispatch(CreateRun("flow", config={"s1": config}))).run_id for config in configs]
    await kernel.dispatch(ClaimPendingRuns("claimer", max_claims=len(configs)))
    return runs


async def keys(blob_store: InMemoryBlobStore) -> list[str]:
    return [key async for key in blob_store.list("")]


async def queued(transport: InMemoryJobTransport, run_id: str) -> dict[str, Json]:
    (job,) = await transport.get_jobs_by_run(run_id)
    return job.payload


@pytest.mark.guarantee("kernel.large-payloads-spill")
async def test_a_large_payload_lies_in_the_blob_store_until_its_job_is_claimed(
    kernel: Kernel,
    transport: InMemoryJobTransport,
    blob_store: InMemoryBlobStore,
    take_job: TakeJob,
    execute: Execute,
) -> None:
    (run_id,) = await start(kernel, {"text": "x" * 300})
    payload = {"config": {"text": "x" * 300, "data": None}}
    (key,) = await keys(blob_store)
    assert key.startswith(f"workflow-v2/flow/{run_id}/_jobs/s1-")
    assert json.loads(await blob_store.get(key)) == payload
    assert await queued(transport, run_id) == {
        "spilled_payload": {"key": key, "size": len(await blob_store.get(key))}
    }
    job = await take_job(kernel)
    assert job.payload == payload
    assert (await execute(kernel, job)).output == 300


@pytest.mark.parametrize(("more", "spilled"), [(0, False), (1, True)])
async def test_the_limit_is_in_bytes_of_json_and_itself_inline(
    kernel: Kernel, transport: InMemoryJobTransport, blob_store: InMemoryBlobStore, more: int, spilled: bool
) -> None:
    rest = len('{"config":{"text":"","data":null}}')
    text = "ü" * ((200 - rest) // 2) + "x" * ((200 - rest) % 2 + more)
    (run_id,) = await start(kernel, {"text": text})
    assert ("spilled_payload" in await queued(transport, run_id)) is spilled
    assert len(await keys(blob_store)) == spilled


async def test_many_large_payloads_are_stored_together_with_no_transaction_open(
    kernel: Kernel, moments: list[str], blob_store: InMemoryBlobStore
) -> None:
    await start(kernel, *({"text": "x" * 300, "data": number} for number in range(5)))
    assert len(await keys(blob_store)) == 5
    first, last = (
        moments.index("blob_store.put"),
        len(moments) - moments[::-1].index("blob_store.put"),
    )
    assert set(moments[first:last]) <= {"blob_store.put", "committed"}


@pytest.mark.parametrize("data", [{"spilled_payload": {"key": "k", "size": 1}}, {"config": {}}])
async def test_user_data_that_looks_like_a_claim_check_is_just_data(
    kernel: Kernel, take_job: TakeJob, data: Any
) -> None:
    await start(kernel, {"data": data})
    assert (await take_job(kernel)).payload == {"config": {"text": "", "data": data}}


@pytest.mark.parametrize(
    "payload",
    [
        {"spilled_payload": {"key": "some/other/blob", "size": 5}},
        {"spilled_payload": {"key": "workflow-v2/flow/r/s1/output-1.json", "size": 5}},
        {"spilled_payload": "text"},
        {"spilled_payload": {"key": "k"}},
        {"spilled_payload": {"key": None, "size": True}},
        {"spilled_payload": {"key": "k", "size": 5}, "more": 1},
    ],
)
async def test_what_is_enqueued_past_the_kernel_reaches_no_other_blob(
    kernel: Kernel, transport: InMemoryJobTransport, blob_store: InMemoryBlobStore, payload: dict[str, Json]
) -> None:
    (run_id,) = await start(kernel, {})
    await blob_store.put("some/other/blob", b'"abc"')
    await transport.enqueue_parallel(
        [NewJob(id="j", run_id=run_id, workflow_id="flow", stage_id="s1", payload=payload)]
    )
    (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    assert job.payload == payload
    assert await unpack_payload(kernel, payload) == payload


@pytest.mark.guarantee("kernel.a-missing-payload-fails-its-job-alone")
async def test_a_payload_that_can_not_be_had_fails_its_job_within_its_budget_and_no_other(
    kernel: Kernel,
    transport: InMemoryJobTransport,
    blob_store: InMemoryBlobStore,
    execute: Execute,
    finish: Finish,
    statuses: Statuses,
    clock: FakeClock,
) -> None:
    broken, whole = await start(kernel, {"text": "x" * 300}, {"text": "y" * 301})
    (key,) = [key for key in await keys(blob_store) if broken in key]
    data = await blob_store.get(key)
    await blob_store.delete(key)
    (job,) = (await kernel.dispatch(ClaimJobs("w", limit=5))).jobs
    assert job.run_id == whole
    assert await statuses(kernel, broken) == {"s1": Status.PENDING}
    (waiting,) = await transport.get_jobs_by_run(broken)
    assert (waiting.status, waiting.failures) == (Status.PENDING, 1)
    assert key in (waiting.last_error or "")
    await execute(kernel, job)
    await blob_store.put(key, data)
    assert (await finish(kernel, broken)).output == 300
    assert [line.level for line in (await kernel.runs.logs(broken)).items] == ["WARN"]


@pytest.mark.tampers
async def test_a_payload_that_stays_away_fails_stage_and_run_naming_its_key(
    kernel: Kernel, transport: InMemoryJobTransport, blob_store: InMemoryBlobStore, told: Callable[..., Any]
) -> None:
    (run_id,) = await start(kernel, {"text": "x" * 300})
    (key,) = await keys(blob_store)
    await blob_store.delete(key)
    for _ in range(3):
        assert (await kernel.dispatch(ClaimJobs("w"))).jobs == ()
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.FAILED
    assert run.error is not None
    assert (run.error.code, run.error.type) == ("PAYLOAD_UNAVAILABLE", "SpilledPayloadUnavailableError")
    assert key in run.error.message
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures) == (Status.FAILED, 2)
    story = await told(kernel, run_id)
    assert [kind for kind in story if not kind.endswith("started")] == [
        "workflow:created",
        "stage:retrying",
        "stage:failed",
        "workflow:failed",
    ]


@pytest.mark.tampers
async def test_a_claimer_without_the_workflow_hands_the_job_back(
    kernel: Kernel,
    make_kernel: MakeKernel,
    transport: InMemoryJobTransport,
    blob_store: InMemoryBlobStore,
) -> None:
    (run_id,) = await start(kernel, {"text": "x" * 300})
    await blob_store.delete((await keys(blob_store))[0])
    stranger = make_kernel()
    assert (await stranger.dispatch(ClaimJobs("w", serves="all"))).jobs == ()
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures, job.interruptions) == (Status.PENDING, 0, 1)


@pytest.mark.tampers
async def test_a_cancel_while_a_payload_is_looked_for_has_the_last_word(
    kernel: Kernel,
    blob_store: InMemoryBlobStore,
    hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]],
    statuses: Statuses,
) -> None:
    (run_id,) = await start(kernel, {"text": "x" * 300})
    await blob_store.delete((await keys(blob_store))[0])
    reached, go = hold_at("blob_store.get")
    claiming = asyncio.create_task(kernel.dispatch(ClaimJobs("w")))
    await reached.wait()
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    go.set()
    assert (await claiming).jobs == ()
    assert await statuses(kernel, run_id) == {"s1": Status.CANCELLED}
    assert (await kernel.runs.events(run_id))[-1].type == "workflow:cancelled"


@pytest.mark.tampers
async def test_a_failure_that_can_not_be_recorded_leaves_the_job_to_its_lease(
    kernel: Kernel,
    transport: InMemoryJobTransport,
    blob_store: InMemoryBlobStore,
    fail_at: Callable[..., None],
    lose_worker: Callable[[], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (run_id,) = await start(kernel, {"text": "x" * 300})
    await blob_store.delete((await keys(blob_store))[0])
    fail_at("append_logs", error=ConnectionError("down"))
    assert (await kernel.dispatch(ClaimJobs("w"))).jobs == ()
    assert "could not be recorded" in caplog.text
    await lose_worker()
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures, job.worker_losses) == (Status.PENDING, 0, 1)


async def test_whoever_delivers_jobs_by_another_queue_unpacks_them(
    kernel: Kernel, transport: InMemoryJobTransport, blob_store: InMemoryBlobStore
) -> None:
    large, small = await start(kernel, {"text": "x" * 300}, {"text": "y"})
    message = await queued(transport, large)
    assert await unpack_payload(kernel, message) == {"config": {"text": "x" * 300, "data": None}}
    assert await unpack_payload(kernel, await queued(transport, small)) == {
        "config": {"text": "y", "data": None}
    }
    (key,) = await keys(blob_store)
    await blob_store.put(key, b"[]" + b" " * (len(await blob_store.get(key)) - 2))
    with pytest.raises(SpilledPayloadUnavailableError, match=key):
        await unpack_payload(kernel, message)


async def test_a_stage_that_goes_on_again_and_again_has_one_blob(
    make_kernel: MakeKernel,
    blob_store: InMemoryBlobStore,
    take_job: TakeJob,
    execute: Execute,
    resume: Callable[[Kernel, str], Awaitable[None]],
) -> None:
    async def naps(ctx: StageContext[Any, Config]) -> Any:
        for number in range(3):
            await ctx.step.sleep(f"nap-{number}", "1h")
        return len(ctx.config.text)

    stage = define_stage("s1", naps, input=Any, output=Any, config=Config)
    kernel = make_kernel(define_workflow("flow", input=Any).pipe(stage).build(), spill_threshold_bytes=200)
    (run_id,) = await start(kernel, {"text": "x" * 300})
    for _ in range(3):
        assert (await execute(kernel, await take_job(kernel))).outcome == "suspended"
        await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).output == 300
    assert len(await keys(blob_store)) == 1


async def test_claimers_that_compete_for_large_runs_start_each_once(
    kernel: Kernel, blob_store: InMemoryBlobStore, finish: Finish
) -> None:
    runs = [
        (await kernel.dispatch(CreateRun("flow", config={"s1": {"text": "x" * (300 + number)}}))).run_id
        for number in range(12)
    ]
    claims = [kernel.dispatch(ClaimPendingRuns(f"c{number}", max_claims=4)) for number in range(6)]
    claimed = [run.run_id for result in await asyncio.gather(*claims) for run in result.claimed]
    await kernel.dispatch(ClaimPendingRuns("last", max_claims=12))
    assert len(set(claimed)) == len(claimed)
    for number, run_id in enumerate(runs):
        assert (await finish(kernel, run_id)).output == 300 + number
