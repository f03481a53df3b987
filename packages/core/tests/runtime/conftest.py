"""An invocation of a body over in-memory ports, without a kernel around it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stagewright import KernelServices, Workflow, define_workflow
from stagewright.memory import InMemoryBlobStore, InMemoryStepLedger
from stagewright.ports import ActivityRun, StageResources
from stagewright.records import LogRecord, StepRecord
from stagewright.runtime.abort import NeverAborted
from stagewright.runtime.keys import steps_prefix, storage_prefix
from stagewright.system import SystemRandom, TimeSortableIds
from stagewright.testing import FakeClock


class _NoSignals:
    """Nobody sends any."""

    async def has(self, step_id: str) -> bool:
        return False

    async def settle(self, step: StepRecord) -> StepRecord:
        return step


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def blob_store() -> InMemoryBlobStore:
    return InMemoryBlobStore()


@pytest.fixture
def make_activity(clock: FakeClock, blob_store: InMemoryBlobStore) -> Callable[..., ActivityRun]:
    """`make_activity(body, **fields)`: the last stage of a workflow of `first` and that body as `s`."""

    def make(
        body: Callable[..., Any], *, services: KernelServices | None = None, **fields: Any
    ) -> ActivityRun:
        options = {
            name: fields.pop(name)
            for name in ("timeout", "mode", "check_completion", "retry")
            if name in fields
        }
        types = {name: fields.pop(f"{name}_type", Any) for name in ("input", "output")}
        if "config_type" in fields:
            types["config"] = fields.pop("config_type")
        workflow: Workflow = (
            define_workflow("flow", input=fields.pop("workflow_type", Any))
            .stage("first", body, **types)
            .stage("s", body, name="The stage", **types, **options)
            .build()
        )

        async def write_logs(lines: Sequence[LogRecord]) -> None:
            raise AssertionError(f"nobody waits for {lines}")

        resources = StageResources(
            blob_store=blob_store,
            storage_prefix=storage_prefix("flow", "run", "s"),
            clock=clock,
            ids=TimeSortableIds(),
            random=SystemRandom(),
            step_ledger=InMemoryStepLedger(),
            signals=_NoSignals(),
            steps_prefix=steps_prefix("flow", "run", "s"),
            spill_threshold_bytes=65_536,
            services=services or KernelServices(),
            write_logs=write_logs,
        )
        activity = ActivityRun(
            workflow=workflow,
            stage=workflow.stage("s"),
            run_id="run",
            stage_record_id="record",
            stage_number=2,
            attempt=3,
            definition_version="v",
            input=None,
            config={},
            workflow_input=None,
            outputs={},
            resume_state=None,
            abort=NeverAborted(),
            resources=resources,
        )
        return replace(activity, **fields)

    return make
