"""A candidate build against what is stored of single runs."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import Kernel, Stage, StageContext, Workflow, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright.errors import (
    CapabilityMissingError,
    RunNotFoundError,
    ShadowIncompatibleError,
    SpilledPayloadUnavailableError,
)
from stagewright.hosting import drive_run
from stagewright.memory import InMemoryBlobStore, InMemoryPersistence
from stagewright.records import DefinitionRecord
from stagewright.testing import Harness, ShadowedRun, assert_shadow_compatible, shadow_runs


class Rate(BaseModel):
    factor: int = 2


class Currency(BaseModel):
    currency: str


async def body(ctx: StageContext[Any, Any]) -> Any:
    await ctx.step.run("work", lambda: 1)
    return 1


async def waiting_body(ctx: StageContext[Any, Any]) -> Any:
    await ctx.step.run("work", lambda: 1)
    await ctx.step.wait_for_signal("go", timeout="1d")
    return 1


def part(
    stage_id: str, *, waits: bool = False, output: Any = int, config: Any = Rate, dependencies: Any = ()
) -> Stage[Any, Any, Any]:
    execute = waiting_body if waits else body
    return define_stage(stage_id, execute, input=Any, output=output, config=config, dependencies=dependencies)


def flow(*groups: list[Stage[Any, Any, Any]], id: str = "w", input: Any = int) -> Workflow:
    builder = define_workflow(id, input=input)
    for group in groups:
        builder = builder.parallel(*group) if len(group) > 1 else builder.pipe(group[0])
    return builder.build()


DEPLOYED = flow([part("a")], [part("b", waits=True)], [part("c")])


@pytest.fixture
async def harness() -> Harness:
    """A run that has `a` behind it, waits in `b`, and has `c` before it."""
    harness = Harness(DEPLOYED)
    await harness.start("w", 1)
    for _ in range(2):
        await harness.tick()
    return harness


def store_of(harness: Harness) -> InMemoryPersistence:
    persistence = harness.kernel.ports.persistence
    assert isinstance(persistence, InMemoryPersistence)
    return persistence


async def shadowed(harness: Harness, candidate: Workflow) -> ShadowedRun:
    ports = harness.kernel.ports
    report = await shadow_runs(
        ports.persistence, candidate, step_ledger=ports.step_ledger, blob_store=ports.blob_store
    )
    (run,) = report.runs
    assert (report.ok, report.compatible, report.incompatible) == (run.compatible, *_counts(run))
    return run


def _counts(run: ShadowedRun) -> tuple[int, int]:
    return int(run.compatible), int(not run.compatible)


@pytest.mark.parametrize(
    ("candidate", "issues"),
    [
        (flow([part("a")], [part("b", waits=True)], [part("c")]), []),
        (flow([part("a")], [part("b")], [part("c")], [part("d")]), []),
        (flow([part("a")], [part("b")], [part("c"), part("d")]), []),
        (flow([part("a")], [part("b")], id="other"), [("WORKFLOW_MISSING", None)]),
        (
            flow([part("a")], [part("c")]),
            [
                ("STAGE_REMOVED", "b"),
                ("STAGE_INSERTED_BEFORE_CURSOR", "c"),
                ("STEP_LEDGER_ORPHANED", "b"),
            ],
        ),
        (
            flow([part("d")], [part("a")], [part("b")], [part("c")]),
            [
                ("EXECUTION_GROUP_CHANGED", "a"),
                ("STAGE_ORDER_CHANGED", "a"),
                ("EXECUTION_GROUP_CHANGED", "b"),
                ("STAGE_ORDER_CHANGED", "b"),
                ("STAGE_INSERTED_BEFORE_CURSOR", "d"),
                ("SNAPSHOT_DRIFT", "c"),
            ],
        ),
        (
            flow([part("a")], [part("d"), part("b")], [part("c")]),
            [("STAGE_ORDER_CHANGED", "b"), ("STAGE_INSERTED_BEFORE_CURSOR", "d"), ("SNAPSHOT_DRIFT", "c")],
        ),
        (flow([part("a")], [part("b")], [part("c")], input=float), []),
        (flow([part("a")], [part("b")], [part("c")], input=Currency), [("INPUT_REJECTED", None)]),
        (flow([part("a")], [part("b")], [part("c", config=Currency)]), [("CONFIG_REJECTED", "c")]),
        (flow([part("a", output=dict)], [part("b")], [part("c")]), [("OUTPUT_REJECTED", "a")]),
        (flow([part("a")], [part("b")]), [("SNAPSHOT_DRIFT", "c")]),
        (
            flow([part("a")], [part("b")], [part("c", dependencies=["a"])]),
            [("SNAPSHOT_DRIFT", "c")],
        ),
        (flow([part("a")], [part("b", output=str)], [part("c")]), [("SNAPSHOT_DRIFT", "b")]),
    ],
)
@pytest.mark.guarantee("testing.shadowed-runs-name-what-is-in-the-way")
async def test_a_run_names_what_keeps_a_candidate_from_carrying_it_on(
    harness: Harness, candidate: Workflow, issues: list[tuple[str, str | None]]
) -> None:
    run = await shadowed(harness, candidate)
    assert [(issue.code, issue.stage_id) for issue in run.issues] == issues
    assert (run.workflow_id, run.version, run.status) == ("w", DEPLOYED.definition_version, "RUNNING")


async def test_the_failures_of_a_report_are_one_line_each(harness: Harness) -> None:
    good = flow([part("a")], [part("b", waits=True)], [part("c")])
    assert_shadow_compatible(await shadow_runs(store_of(harness), [good]))
    await harness.start("w", 2)
    report = await shadow_runs(store_of(harness), [flow([part("a")], [part("c")])])
    with pytest.raises(ShadowIncompatibleError, match="can't carry on 2 of them") as refused:
        assert_shadow_compatible(report)
    assert isinstance(refused.value, AssertionError)
    assert len(refused.value.failures) == 2
    assert len(str(refused.value).splitlines()) == 3
    for run in report.runs:
        assert any(run.run_id in line and run.issues[0].message in line for line in refused.value.failures)


async def test_runs_are_chosen_by_id_in_that_order(harness: Harness) -> None:
    later = await harness.start("w", 2)
    ended = await harness.start("w", 3)
    await harness.cancel(ended)
    store = store_of(harness)
    report = await shadow_runs(persistence=store, candidates=[DEPLOYED], run_ids=[ended, later])
    assert [(run.run_id, run.status) for run in report.runs] == [(ended, "CANCELLED"), (later, "PENDING")]
    assert len((await shadow_runs(store, DEPLOYED)).runs) == 2
    assert (await shadow_runs(store, DEPLOYED, [])).runs == ()
    with pytest.raises(RunNotFoundError, match="gone"):
        await shadow_runs(store, DEPLOYED, [later, "gone"])


async def test_without_a_ledger_and_a_blob_store_their_share_is_left_out(harness: Harness) -> None:
    report = await shadow_runs(store_of(harness), flow([part("a")], [part("c")]))
    assert "STEP_LEDGER_ORPHANED" not in {issue.code for issue in report.runs[0].issues}


async def _spilled(kernel: Kernel) -> str:
    created = await kernel.dispatch(CreateRun("w", 1))
    assert (await drive_run(kernel, created.run_id)).status == "COMPLETED"
    return created.run_id


async def test_large_outputs_are_read_and_missing_ones_are_no_finding() -> None:
    deployed = flow([part("a")], [part("c")])
    candidate = flow([part("a", output=dict)], [part("c")])
    async with open_kernel(deployed, "memory://", spill_threshold_bytes=0) as kernel:
        run_id = await _spilled(kernel)
        store, blobs = kernel.ports.persistence, kernel.ports.blob_store
        seen = await shadow_runs(store, candidate, [run_id], blob_store=blobs)
        assert [issue.code for issue in seen.runs[0].issues] == ["OUTPUT_REJECTED"]
        unseen = await shadow_runs(store, candidate, [run_id])
        assert [issue.code for issue in unseen.runs[0].issues] == ["SNAPSHOT_DRIFT"]
        missing = await shadow_runs(store, candidate, [run_id], blob_store=InMemoryBlobStore())
        assert missing.runs[0].issues == unseen.runs[0].issues

        class Away(InMemoryBlobStore):
            async def get(self, key: str) -> bytes:
                raise ConnectionError("the bucket is away")

        with pytest.raises(SpilledPayloadUnavailableError, match="the bucket is away"):
            await shadow_runs(store, candidate, [run_id], blob_store=Away())


async def test_a_run_without_a_version_is_held_against_its_rows_alone(harness: Harness) -> None:
    store = store_of(harness)
    (run,) = (await harness.kernel.runs.list()).items
    await store.create_run(replace(run, id="unpinned", definition_version=None))
    report = await shadow_runs(store, flow([part("a")], [part("b")]), ["unpinned"])
    assert report.ok


async def test_a_snapshot_that_is_kept_as_text_is_read(harness: Harness) -> None:
    class TextStore(InMemoryPersistence):
        async def get_definition(self, workflow_id: str, version: str) -> DefinitionRecord | None:
            found = await super().get_definition(workflow_id, version)
            return None if found is None else replace(found, snapshot=json.dumps(found.snapshot))

    report = await shadow_runs(TextStore(store_of(harness).database), flow([part("a")], [part("b")]))
    assert [issue.code for issue in report.runs[0].issues] == ["SNAPSHOT_DRIFT"]


async def test_a_store_that_can_not_list_runs_needs_their_ids(harness: Harness) -> None:
    class Blind:
        def __init__(self, inner: InMemoryPersistence) -> None:
            self.load_runs = inner.load_runs
            self.get_definition = inner.get_definition

    (run,) = (await harness.kernel.runs.list()).items
    blind: Any = Blind(store_of(harness))
    assert (await shadow_runs(blind, DEPLOYED, [run.id])).ok
    with pytest.raises(CapabilityMissingError, match="give shadow_runs the run_ids"):
        await shadow_runs(blind, DEPLOYED)
