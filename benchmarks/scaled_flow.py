"""The workflow that scaling is measured with: one trivial stage, which waits first if its input says for how long."""

from collections.abc import Callable

from stagewright import StageContext, Workflow, define_workflow

__all__ = ["PAUSE", "WORKFLOW", "scaled_flow"]

WORKFLOW = "scaled"
PAUSE = 0.05
"""Seconds that a stage waits which is wanted suspended."""


def scaled_flow(ended: Callable[[], None] = lambda: None) -> Workflow:
    """The workflow; `ended` is called at the end of each body."""

    async def body(ctx: StageContext[float | None]) -> int:
        if ctx.input is not None:
            await ctx.step.sleep("pause", ctx.input)
        ended()
        return 1

    return (
        define_workflow(WORKFLOW, input=float | None)
        .stage("only", body, input=float | None, output=int)
        .build()
    )
