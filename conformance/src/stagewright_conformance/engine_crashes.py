"""Kernels over the adapters whose processes are lost at any call of a port."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pytest

from stagewright import Kernel, StageContext, define_workflow
from stagewright.commands import ClaimJobs, CreateRun, PurgeRuns
from stagewright.hosting import run_job, run_maintenance_tick
from stagewright.json_values import Json
from stagewright.status import Status
from stagewright_conformance.deployments import Deployment, DeploymentSuite
from stagewright_conformance.lives import LIVES, Life
from stagewright_conformance.processes import Process, ProcessLost
from stagewright_conformance.samples import ODD_JSON, new_id
from stagewright_conformance.suite import Background, Scale

__all__ = ["EngineCrashSuite"]

_SECOND_LOSS: Final = 3
"""At every so manieth moment the process that makes up for the loss is lost too."""


class _Recorded(NamedTuple):
    """What was recorded of a run when a process was lost; nothing of it may change any more."""

    stages: dict[str, tuple[int, object, Json]]
    steps: dict[tuple[str, str], tuple[Json, object]]
    ran: dict[str, int]


class EngineCrashSuite(DeploymentSuite):
    """Processes that are lost at a call of a port, before it or before its answer, and others that go on.

    Fixtures: those of `DeploymentSuite`.
    """

    @pytest.mark.guarantee("stores.engine-survives-any-call")
    @pytest.mark.parametrize("kind", LIVES, ids=lambda kind: kind.__name__.lower())
    async def test_processes_lost_at_any_call_are_made_up_for(
        self, deployment: Deployment, scale: Scale, kind: type[Life]
    ) -> None:
        """`Persistence`, `JobTransport`, `StepLedger`, `BlobStore`: what belongs together is kept whole or not."""
        (process,) = await live(deployment, kind(), [])
        for number, moment in enumerate(spread(process.deeds, scale.crashes)):
            await live(deployment, kind(), [moment])
            if number % _SECOND_LOSS == 0:
                soon = process.deeds[number * 7 % len(process.deeds)]
                await live(deployment, kind(), [moment, soon])

    @pytest.mark.guarantee("stores.engine-survives-any-call")
    @pytest.mark.parametrize("kind", LIVES, ids=lambda kind: kind.__name__.lower())
    async def test_processes_lost_while_they_hand_over_are_made_up_for(
        self, deployment: Deployment, scale: Scale, kind: type[Life]
    ) -> None:
        """`DeliversAtOnce`: what is handed over comes with what was recorded before it, or not at all."""
        (process,) = await live(deployment, kind(), [], goes_on=True)
        for number, moment in enumerate(spread(process.deeds, scale.crashes)):
            await live(deployment, kind(), [moment], goes_on=True)
            if number % _SECOND_LOSS == 0:
                soon = process.deeds[number * 7 % len(process.deeds)]
                await live(deployment, kind(), [moment, soon], goes_on=True)

    async def test_what_a_worker_does_after_it_lost_its_lease_changes_nothing(
        self, deployment: Deployment, background: Background, scale: Scale
    ) -> None:
        """`StepLedger.compare_and_set`, `JobQueue`: a superseded worker changes neither a step nor a stage."""
        at_work, go_on = asyncio.Event(), asyncio.Event()
        calls: list[int] = []

        async def charge() -> int:
            calls.append(len(calls) + 1)
            mine = calls[-1]
            if mine == 1:
                at_work.set()
                await go_on.wait()
            return mine

        async def body(ctx: StageContext[Any]) -> Any:
            return await ctx.step.run("charge", charge)

        flow = define_workflow(new_id("flow"), input=Any).stage("pay", body, input=Any, output=Any).build()
        frozen, other = deployment.kernel(flow), deployment.kernel(flow, handle=1)
        run_id = (await frozen.dispatch(CreateRun(flow.id))).run_id
        await run_maintenance_tick(frozen, deployment.settings)
        [job] = (await frozen.dispatch(ClaimJobs("frozen"))).jobs
        late = background.start(run_job(frozen, job))
        await scale.soon(at_work.wait())
        await deployment.let_time_pass()
        run = await scale.soon(deployment.work_off(other, run_id))
        go_on.set()
        await scale.soon(asyncio.wait([late]))
        assert (run.status, run.output, calls) == (Status.COMPLETED, 2, [1, 2])
        [stage] = await other.runs.stages(run_id)
        [step] = await deployment.steps_of(other, stage.id)
        assert (step.status, step.result) == ("completed", 2)
        assert await other.runs.get(run_id) == run
        await deployment.work_off(other, run_id)
        await deployment.ended_well(other, run_id)


def spread(moments: Sequence[int], most: int) -> list[int]:
    """Up to so many of the moments, as far from each other as can be."""
    ordered = sorted(set(moments))
    count = min(len(ordered), most)
    return [ordered[number * len(ordered) // count] for number in range(count)]


async def live(
    deployment: Deployment, life: Life, lost_at: Iterable[int], *, goes_on: bool = False
) -> tuple[Process, ...]:
    """Live a life in one process after the other, each but the last lost at a moment of its own.

    Returns:
        The processes that there were.

    Raises:
        AssertionError: If the life doesn't end as it has to, naming the moments.
    """
    processes: list[Process] = []
    recorded: list[_Recorded] = []
    try:
        for number, process in enumerate(_processes(lost_at)):
            processes.append(process)
            kernel = deployment.kernel(life.workflow, handle=number, process=process)
            try:
                await _go_on(deployment, life, kernel, recorded, goes_on=goes_on)
            except (Exception, ProcessLost, BaseExceptionGroup):
                if not process.is_lost:
                    raise
            if not process.is_lost:
                break
            recorded += await _recorded(deployment, life)
    except Exception as error:
        error.add_note(f"in the life {type(life).__name__} of run {life.run_id!r}")
        for process in processes:
            error.add_note(f"after {process}")
        raise
    return tuple(processes)


def _processes(lost_at: Iterable[int]) -> Iterator[Process]:
    yield from map(Process, lost_at)
    yield Process()


async def _go_on(
    deployment: Deployment, life: Life, kernel: Kernel, recorded: list[_Recorded], *, goes_on: bool
) -> None:
    """Whatever is left to do of a life; the kernel's process may be lost meanwhile."""
    key = f"start {life.workflow_id}"
    if not life.run_id:
        start = CreateRun(life.workflow_id, ODD_JSON, config=life.config, idempotency_key=key)
        life.run_id = (await kernel.dispatch(start)).run_id
    healthy = deployment.kernel(life.workflow, handle=1)
    if not life.is_over:
        run = await deployment.work_off(kernel, life.run_id, life.errand, goes_on=goes_on)
        assert (run.status, life.is_done) == (life.ends, True)
        if run.status is Status.COMPLETED:
            life.check(run.output)
        await deployment.ended_well(healthy, life.run_id)
        assert [each.id for each in (await healthy.runs.list(workflow_id=life.workflow_id)).items] == [run.id]
        now = await _recorded(deployment, life)
        for before in recorded:
            _require_kept(before, now[0])
        life.is_over = True
        life.stage_record_ids = [stage.id for stage in await healthy.runs.stages(life.run_id)]
    while (await kernel.dispatch(PurgeRuns(deployment.clock.now()))).purged:
        pass
    assert await deployment.left_of(healthy, life.run_id, life.stage_record_ids) == []
    assert await deployment.is_key_free(healthy, key, CreateRun.type), "the key of the start is left over"


async def _recorded(deployment: Deployment, life: Life) -> list[_Recorded]:
    if not life.run_id or life.is_over:
        return []
    kernel = deployment.kernel(life.workflow, handle=1)
    every = await kernel.runs.stages(life.run_id)
    stages = [one for one in every if one.status is Status.COMPLETED]
    outputs = {one.id: await kernel.runs.output_of(life.run_id, one.stage_id) for one in stages}
    ledgers = [await deployment.steps_of(kernel, one.id) for one in every]
    steps = [one for of_stage in ledgers for one in of_stage if one.status == "completed"]
    names = [*(stage.stage_id for stage in stages), *(step.step_id for step in steps)]
    return [
        _Recorded(
            stages={one.id: (one.attempt, one.completed_at, outputs[one.id]) for one in stages},
            steps={(one.stage_record_id, one.step_id): (one.result, one.result_claim) for one in steps},
            ran={name: life.ran[name] for name in names},
        )
    ]


def _require_kept(before: _Recorded, now: _Recorded) -> None:
    assert {id: now.stages.get(id) for id in before.stages} == before.stages, "a recorded output has changed"
    assert {id: now.steps.get(id) for id in before.steps} == before.steps, "a recorded result has changed"
    assert {name: now.ran.get(name) for name in before.ran} == before.ran, "what was recorded ran again"
