"""Runs from their start to their purge, by two processes that share the stores."""

from datetime import timedelta
from typing import Any, Final

import pytest

from stagewright import (
    Kernel,
    StageContext,
    StepRun,
    Workflow,
    WorkflowRegistry,
    define_stage,
    define_workflow,
)
from stagewright.commands import CancelRun, CreateRun, FlushOutbox, PurgeRuns
from stagewright.hosting import drive_run
from stagewright.plugins import AdapterSet
from stagewright.status import Status
from stagewright.system import SystemClock
from stagewright.testing import CollectingEventSink, assert_consistent
from stagewright_conformance import Suite

__all__ = ["WholeLifeSuite"]

_LARGE: Final = "large " * 1_000


class WholeLifeSuite(Suite):
    """Kernels over the adapters, from the start of a run to its purge.

    Fixtures: `adapters` (required: the ports, over empty stores) and `other_adapters` (required: the same stores as
    another process has them).
    """

    @pytest.fixture
    def sink(self) -> CollectingEventSink:
        """Where events go."""
        return CollectingEventSink()

    async def test_a_run_goes_from_its_start_to_its_purge(
        self, adapters: AdapterSet, other_adapters: AdapterSet, sink: CollectingEventSink
    ) -> None:
        """`Persistence`, `JobTransport`, `BlobStore`: one process starts a run, another ends it, nothing is left."""
        paid: list[int] = []
        tries: list[int] = []

        async def pay(ctx: StageContext[Any]) -> Any:
            async def once(run: StepRun) -> int:
                paid.append(run.attempt)
                return len(paid)

            number = await ctx.step.run("pay", once)
            tries.append(ctx.attempt)
            if len(tries) < 2:
                raise ConnectionError("the first try fails")
            return {"paid": number, "receipt": _LARGE}

        async def ship(ctx: StageContext[Any]) -> Any:
            return {"length": len(ctx.input["receipt"]), "paid": ctx.input["paid"]}

        flow = (
            define_workflow("flow", input=Any)
            .pipe(define_stage("pay", pay, input=Any, output=Any))
            .pipe(define_stage("ship", ship, input=Any, output=Any))
            .build()
        )
        one, other = _kernel(adapters, sink, flow), _kernel(other_adapters, sink, flow)
        started = await one.dispatch(CreateRun("flow", {"order": _LARGE}, idempotency_key="k"))
        again = await other.dispatch(CreateRun("flow", {"order": _LARGE}, idempotency_key="k"))
        assert again.run_id == started.run_id
        run = await drive_run(other, started.run_id, timeout="30s")
        assert run.status is Status.COMPLETED
        assert (len(paid), len(tries)) == (1, 2)
        assert await one.runs.output_of(run.id, "ship") == {"length": len(_LARGE), "paid": 1}
        await assert_consistent(one)
        while (await one.dispatch(FlushOutbox())).published:
            pass
        told = [event.event_id for event in sink.events if event.run_id == run.id]
        assert list(dict.fromkeys(told)) == [event.id for event in await one.runs.events(run.id, limit=500)]
        assert (
            await one.dispatch(PurgeRuns(older_than=one.ports.clock.now() + timedelta(hours=1)))
        ).purged == 1
        assert await other.runs.get(run.id) is None
        assert adapters.job_transport is not None
        assert await adapters.job_transport.get_jobs_by_run(run.id) == []
        assert adapters.blob_store is not None
        assert [key async for key in adapters.blob_store.list("")] == []

    async def test_a_cancelled_run_leaves_no_job(
        self, adapters: AdapterSet, other_adapters: AdapterSet, sink: CollectingEventSink
    ) -> None:
        """`JobTransport`: what a process cancels, no other process works on."""

        async def never(ctx: StageContext[Any]) -> Any:
            raise AssertionError("it was cancelled before")

        flow = (
            define_workflow("flow", input=Any).pipe(define_stage("s", never, input=Any, output=Any)).build()
        )
        one, other = _kernel(adapters, sink, flow), _kernel(other_adapters, sink, flow)
        started = await one.dispatch(CreateRun("flow", None))
        await other.dispatch(CancelRun(started.run_id))
        run = await drive_run(one, started.run_id, timeout="30s")
        assert run.status is Status.CANCELLED
        assert adapters.job_transport is not None
        assert await adapters.job_transport.depth() == 0


def _kernel(adapters: AdapterSet, sink: CollectingEventSink, flow: Workflow) -> Kernel:
    ports: dict[str, Any] = {
        name: getattr(adapters, name)
        for name in ("persistence", "job_transport", "step_ledger", "blob_store", "run_reader")
    }
    clock = adapters.clock or SystemClock()
    registry = WorkflowRegistry([flow])
    return Kernel(**ports, event_sink=sink, clock=clock, registry=registry, spill_threshold_bytes=1_000)
