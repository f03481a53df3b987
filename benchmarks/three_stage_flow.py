"""The workflow that is measured: three stages, each adds one, so that the work is the engine's."""

from typing import Any

from benchmarks.contender import STAGES, WORKFLOW

from stagewright import StageContext, Workflow, define_workflow
from stagewright.json_values import Json

__all__ = ["first_input", "three_stages"]


def first_input() -> dict[str, Json]:
    """The input of every run."""
    return {"amount": 1}


def three_stages() -> Workflow:
    """The workflow."""

    async def add_one(ctx: StageContext[Any]) -> Any:
        return {"amount": ctx.input["amount"] + 1}

    builder = define_workflow(WORKFLOW, input=Any)
    for stage_id in STAGES:
        builder = builder.stage(stage_id, add_one, input=Any, output=Any)
    return builder.build()
