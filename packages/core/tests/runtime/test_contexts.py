"""What a body sees of its run, and what it finds of earlier stages."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from pydantic import BaseModel

from stagewright import KernelServices, StageContext
from stagewright.errors import AIServicesNotConfiguredError, SchemaMismatchError, StageOutputMissingError
from stagewright.memory import InMemoryBlobStore
from stagewright.ports import ActivityRun
from stagewright.runtime.contexts import AsyncContext
from stagewright.runtime.outputs import EarlierOutputs
from stagewright.runtime.reports import StageReports

MakeActivity = Callable[..., ActivityRun]


class Order(BaseModel):
    n: int = 0


async def body(ctx: StageContext[Any]) -> Any:
    return None


def context_of(activity: ActivityRun, *, input: object = None, config: object = None) -> AsyncContext:
    return AsyncContext(activity, StageReports(activity), input=input, config=config)


def test_a_context_names_its_place(make_activity: MakeActivity) -> None:
    ctx = context_of(make_activity(body), input="in", config="config")
    assert (ctx.run_id, ctx.workflow_id, ctx.stage_id, ctx.stage_record_id) == ("run", "flow", "s", "record")
    assert (ctx.stage_name, ctx.stage_number, ctx.attempt) == ("The stage", 2, 3)
    assert (ctx.definition_version, ctx.input, ctx.config) == ("v", "in", "config")


def test_a_run_that_is_pinned_to_nothing_has_the_version_of_this_build(make_activity: MakeActivity) -> None:
    activity = make_activity(body, definition_version=None)
    assert context_of(activity).definition_version == activity.workflow.definition_version


def test_the_runs_input_is_read_as_its_type_when_asked_for(make_activity: MakeActivity) -> None:
    ctx = context_of(make_activity(body, workflow_type=Order, workflow_input={"n": 2}))
    assert ctx.workflow_input == Order(n=2)
    assert ctx.workflow_input is ctx.workflow_input
    misfit = context_of(make_activity(body, workflow_type=Order, workflow_input={"n": "x"}))
    with pytest.raises(SchemaMismatchError, match="the input of run 'run'"):
        _ = misfit.workflow_input


@pytest.mark.guarantee("kernel.bodies-get-earlier-outputs")
def test_outputs_of_earlier_stages_are_read_as_their_types(make_activity: MakeActivity) -> None:
    activity = make_activity(body, output_type=Order, outputs={"first": {"n": 1}})
    ctx = context_of(activity)
    first = activity.workflow.stage("first")
    assert ctx.require("first") == ctx.require(first) == ctx.optional(first) == Order(n=1)
    assert ctx.require("first") is ctx.outputs["first"]
    assert dict(ctx.outputs) == {"first": Order(n=1)}
    assert (len(ctx.outputs), "s" in ctx.outputs, ctx.outputs.get("s")) == (1, False, None)


def test_a_missing_output_names_those_that_are_there(make_activity: MakeActivity) -> None:
    ctx = context_of(make_activity(body, outputs={"first": 1}))
    with pytest.raises(StageOutputMissingError) as caught:
        ctx.require("later")
    assert (caught.value.stage_id, caught.value.available) == ("later", ("first",))
    assert ctx.optional("later") is None


def test_an_output_of_none_is_an_output(make_activity: MakeActivity) -> None:
    ctx = context_of(make_activity(body, outputs={"first": None}))
    assert ctx.require("first") is None
    assert list(ctx.outputs) == ["first"]


def test_outputs_can_not_be_changed(make_activity: MakeActivity) -> None:
    activity = make_activity(body, outputs={"first": 1})
    outputs: Mapping[str, Any] = EarlierOutputs(activity.workflow, activity.outputs)
    with pytest.raises(TypeError, match="assignment"):
        cast("dict[str, Any]", outputs)["first"] = 2


def test_the_suspended_state_comes_back(make_activity: MakeActivity) -> None:
    assert context_of(make_activity(body)).resume_state is None
    assert context_of(make_activity(body, resume_state={"id": 1})).resume_state == {"id": 1}


def test_without_model_calls_the_context_says_what_is_missing(make_activity: MakeActivity) -> None:
    ctx = context_of(make_activity(body))
    with pytest.raises(AIServicesNotConfiguredError, match=r"ctx\.ai "):
        _ = ctx.ai
    with pytest.raises(AIServicesNotConfiguredError, match="ai_logger"):
        _ = ctx.ai_logger


def test_model_calls_are_made_for_the_stages_topic(make_activity: MakeActivity) -> None:
    logger = cast(Any, object())
    services = KernelServices(ai_logger=logger, ai=lambda topic, log: (topic, log))
    ctx = context_of(make_activity(body, services=services))
    assert ctx.ai == ("workflow.run.stage.s", logger)
    assert ctx.ai is ctx.ai
    assert ctx.ai_logger is logger


@pytest.mark.guarantee("kernel.storage-is-the-stages-own")
async def test_the_storage_is_the_stages_own_part_of_the_blob_store(
    make_activity: MakeActivity, blob_store: InMemoryBlobStore
) -> None:
    ctx = context_of(make_activity(body))
    await ctx.storage.save("k", 1)
    assert [key async for key in blob_store.list("")] == ["workflow-v2/flow/run/s/storage/k"]
