"""A candidate build against the structures that runs are pinned to."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import (
    Stage,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.errors import (
    DefinitionError,
    DefinitionVersionConflictError,
    InvalidSettingError,
    ShadowIncompatibleError,
)
from stagewright.memory import InMemoryPersistence
from stagewright.records import DefinitionRecord
from stagewright.testing import Harness, assert_shadow_compatible, shadow_runs, shadow_versions


def step(stage_id: str, *, output: Any = int, config: Any = dict) -> Stage[Any, Any, Any]:
    async def body(ctx: StageContext[Any, Any]) -> Any:
        await ctx.step.wait_for_signal("go", timeout="1d")
        return 1

    return define_stage(stage_id, body, input=int, output=output, config=config)


def flow(*groups: list[Stage[Any, Any, Any]], id: str = "w", input: Any = int) -> Workflow:
    builder = define_workflow(id, input=input)
    for group in groups:
        builder = builder.parallel(*group) if len(group) > 1 else builder.pipe(group[0])
    return builder.build()


class Strict(BaseModel):
    currency: str = "EUR"


DEPLOYED = flow([step("a")], [step("b")])


def store_of(harness: Harness) -> InMemoryPersistence:
    persistence = harness.kernel.ports.persistence
    assert isinstance(persistence, InMemoryPersistence)
    return persistence


@pytest.mark.parametrize(
    ("candidate", "codes", "compatible"),
    [
        (flow([step("a")], [step("b")]), [], True),
        (flow([step("a")], [step("b")], [step("c")]), ["STAGE_ADDED"], True),
        (
            flow([step("a")], [step("b")], [step("c", output=str)]),
            ["WORKFLOW_SCHEMA_CHANGED", "STAGE_ADDED"],
            True,
        ),
        (flow([step("a")], [step("b"), step("c")]), ["WORKFLOW_SCHEMA_CHANGED", "STAGE_ADDED"], False),
        (flow([step("a")]), ["STAGE_REMOVED"], False),
        (
            flow([step("c")], [step("a")], [step("b")]),
            ["EXECUTION_GROUP_CHANGED", "STAGE_ORDER_CHANGED"] * 2 + ["STAGE_ADDED"],
            False,
        ),
        (flow([step("a", config=Strict)], [step("b")]), ["STAGE_SCHEMA_CHANGED"], False),
        (flow([step("a")], [step("b")], input=float), ["WORKFLOW_SCHEMA_CHANGED"], False),
        (flow([step("a")], [step("b")], id="other"), ["WORKFLOW_MISSING"], False),
    ],
)
@pytest.mark.guarantee("testing.shadowed-versions-show-every-difference")
async def test_a_version_shows_every_difference_and_whether_it_matters(
    candidate: Workflow, codes: list[str], compatible: bool
) -> None:
    harness = Harness(DEPLOYED)
    for number in range(3):
        await harness.start("w", number)
    report = await shadow_versions(store_of(harness), candidate)
    (version,) = report.versions
    assert (version.workflow_id, version.version, version.run_count) == ("w", DEPLOYED.definition_version, 3)
    assert [drift.code for drift in version.drifts] == codes
    assert (version.compatible, report.ok, report.incompatible) == (
        compatible,
        compatible,
        int(not compatible),
    )
    assert report.supported
    if compatible:
        assert_shadow_compatible(report)
    else:
        with pytest.raises(ShadowIncompatibleError) as refused:
            assert_shadow_compatible(report)
        assert [line for code in codes for line in refused.value.failures if code in line] != []
        assert str(refused.value).count("\n") == 1


async def test_only_runs_that_have_not_ended_count_unless_said() -> None:
    other = flow([step("a")], id="other")
    harness = Harness([DEPLOYED, other])
    await harness.run("w", 1)
    await harness.start("other", 1)
    active = await shadow_versions(persistence=store_of(harness), candidates=[DEPLOYED])
    assert [(version.workflow_id, version.run_count) for version in active.versions] == [("other", 1)]
    failed = await shadow_versions(store_of(harness), [DEPLOYED], statuses=[Status.FAILED])
    assert [(version.workflow_id, version.run_count) for version in failed.versions] == [("w", 1)]
    assert failed.ok
    assert (await shadow_versions(store_of(harness), [DEPLOYED], statuses=["COMPLETED"])).versions == ()


async def test_versions_come_by_workflow_the_newest_first_and_unpinned_ones_last() -> None:
    second = flow([step("a")], [step("b")], [step("c")])
    known = {"w": DEPLOYED}

    class Registry:
        def get(self, id: str) -> Workflow | None:
            return known.get(id)

    harness = Harness(Registry())
    first_run = await harness.start("w", 1)
    harness.clock.advance("1h")
    known["w"] = second
    await harness.start("w", 1)
    store = store_of(harness)
    run = await store.get_run(first_run)
    assert run is not None
    await store.create_run(
        replace(run, id="unpinned", definition_version=None, created_at=harness.clock.now())
    )
    report = await shadow_versions(store, second)
    assert [version.version for version in report.versions] == [
        second.definition_version,
        DEPLOYED.definition_version,
        None,
    ]
    assert report.ok


@pytest.mark.guarantee("testing.shadowed-versions-show-every-difference")
async def test_another_structure_under_the_same_version_is_never_compatible() -> None:
    def named(version: str, *groups: list[Stage[Any, Any, Any]]) -> Workflow:
        return replace(flow(*groups), declared_version=version)

    known = {"w": named("1", [step("a")])}

    class Registry:
        def get(self, id: str) -> Workflow | None:
            return known.get(id)

    harness = Harness(Registry())
    await harness.start("w", 1)
    store = store_of(harness)
    appended = named("1", [step("a")], [step("b")])
    (version,) = (report := await shadow_versions(store, appended)).versions
    assert (version.is_reused, version.compatible, report.incompatible) == (True, False, 1)
    with pytest.raises(ShadowIncompatibleError, match="under the version's own name: declare a new version"):
        assert_shadow_compatible(report)
    runs = await shadow_runs(store, appended)
    assert [(issue.code, issue.stage_id) for issue in runs.runs[0].issues] == [("SNAPSHOT_DRIFT", None)]
    with pytest.raises(ShadowIncompatibleError, match="under the run's own version '1'; declare a new"):
        assert_shadow_compatible(runs)
    # The kernel says the same to whoever creates a run with it.
    known["w"] = appended
    with pytest.raises(DefinitionVersionConflictError):
        await harness.start("w", 1)
    for fine in (named("1", [step("a")]), named("2", [step("a")], [step("b")])):
        assert_shadow_compatible(report := await shadow_versions(store, fine))
        assert not report.versions[0].is_reused
        assert_shadow_compatible(await shadow_runs(store, fine))


async def test_a_snapshot_that_is_kept_as_text_is_read() -> None:
    class TextStore(InMemoryPersistence):
        async def get_definition(self, workflow_id: str, version: str) -> DefinitionRecord | None:
            found = await super().get_definition(workflow_id, version)
            return None if found is None else replace(found, snapshot=json.dumps(found.snapshot))

    harness = Harness(DEPLOYED)
    await harness.start("w", 1)
    report = await shadow_versions(TextStore(store_of(harness).database), flow([step("a")]))
    assert [drift.code for drift in report.versions[0].drifts] == ["STAGE_REMOVED"]


async def test_what_is_wrong_with_a_call_is_said() -> None:
    store = store_of(Harness(DEPLOYED))
    with pytest.raises(DefinitionError, match="shadow_versions"):
        await shadow_versions(store, 3)  # type: ignore[arg-type]  # what an untyped caller may give
    with pytest.raises(ValueError, match="DONE"):
        await shadow_versions(store, DEPLOYED, statuses=["DONE"])
    with pytest.raises(InvalidSettingError, match="statuses='RUNNING' must be a list"):
        await shadow_versions(store, DEPLOYED, statuses="RUNNING")
    with pytest.raises(InvalidSettingError, match="run_ids='one' must be a list"):
        await shadow_runs(store, DEPLOYED, "one")
    kernel = Harness(DEPLOYED).kernel
    for look in (shadow_versions, shadow_runs):
        for none in (kernel, kernel.ports, "sqlite:///runs.db"):
            with pytest.raises(InvalidSettingError, match="such as kernel.ports.persistence"):
                await look(none, DEPLOYED)  # type: ignore[arg-type]  # what an untyped caller may give
    forgotten = shadow_versions(store, DEPLOYED)
    with pytest.raises(InvalidSettingError, match="perhaps an await is missing"):
        assert_shadow_compatible(forgotten)  # type: ignore[arg-type]  # what an untyped caller may give
    assert_shadow_compatible(await forgotten)
