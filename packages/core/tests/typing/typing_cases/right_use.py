"""What the checkers infer from right use."""

from collections.abc import Awaitable
from typing import Any, assert_type

from pydantic import BaseModel

from stagewright.annotations import TypedKey
from stagewright.definitions import (
    BlockingStageContext,
    EmptyConfig,
    NotReady,
    Ready,
    RetryPolicy,
    Schema,
    Stage,
    StageContext,
    StageIds,
    StageResult,
    StepRun,
    Suspend,
    Workflow,
    WorkflowBuilder,
    WorkflowRegistry,
    define_stage,
    define_workflow,
    stage,
)


class Order(BaseModel):
    amounts: list[float]


class PriceConfig(BaseModel):
    currency: str = "EUR"


class Priced(BaseModel):
    total: float


@stage("price")
async def price(ctx: StageContext[Order, PriceConfig]) -> Priced:
    assert_type(ctx.input, Order)
    assert_type(ctx.config, PriceConfig)
    assert_type(ctx.input.amounts, list[float])
    return Priced(total=sum(ctx.input.amounts))


@stage("load", retry=RetryPolicy(max_attempts=5), timeout="5s", dependencies=(price, "other"))
async def load(ctx: StageContext[None]) -> list[str]:
    assert_type(ctx.input, None)
    assert_type(ctx.config, EmptyConfig)
    return []


async def priced_later() -> Priced:
    return Priced(total=1)


async def priced_after(extra: int) -> Priced:
    return Priced(total=extra)


def name_of(run: StepRun) -> str:
    return run.external_key


def any_list() -> Any:
    return [1]


@stage("count")
def count(ctx: BlockingStageContext[Order, PriceConfig]) -> int:
    assert_type(ctx.input, Order)
    assert_type(ctx.storage.load("key", Priced), Priced)
    return len(ctx.input.amounts)


@stage("count-rows")
def count_rows(ctx: BlockingStageContext[Order]) -> StageResult[int]:
    return StageResult(output=1, metrics={"rows": 1})


@stage("result")
async def result(ctx: StageContext[Order]) -> StageResult[Priced]:
    return StageResult(output=Priced(total=1))


@stage("either")
async def either(ctx: StageContext[Order]) -> Priced | StageResult[Priced]:
    return Priced(total=1)


@stage("maybe")
async def maybe(ctx: StageContext[Order]) -> Priced | None:
    return None


async def check(state: str, ctx: StageContext[Order, PriceConfig]) -> Ready[Priced] | NotReady:
    return NotReady("5s")


def check_blocking(state: str, ctx: BlockingStageContext[Order, PriceConfig]) -> Ready[Priced] | NotReady:
    return NotReady("5s")


@stage("batch", mode="async-batch", check_completion=check)
async def batch(ctx: StageContext[Order, PriceConfig]) -> Priced | Suspend:
    return Suspend("b-1", poll_interval="5s")


@stage("batch-result", mode="async-batch", check_completion=check_blocking)
def batch_result(ctx: BlockingStageContext[Order, PriceConfig]) -> StageResult[Priced] | Suspend:
    return Suspend("b-1")


assert_type(price, Stage[Order, PriceConfig, Priced])
assert_type(load, Stage[None, EmptyConfig, list[str]])
assert_type(count, Stage[Order, PriceConfig, int])
assert_type(count_rows, Stage[Order, EmptyConfig, int])
assert_type(result, Stage[Order, EmptyConfig, Priced])
assert_type(either, Stage[Order, EmptyConfig, Priced])
assert_type(maybe, Stage[Order, EmptyConfig, Priced | None])
assert_type(batch, Stage[Order, PriceConfig, Priced])
assert_type(batch_result, Stage[Order, PriceConfig, Priced])
assert_type(price.input_schema, Schema[Order])
assert_type(price.output_schema.load({}, what="x"), Priced)
assert_type(Schema.of(Order).load({}, what="x"), Order)


async def later(ctx: StageContext[Priced], blocking: BlockingStageContext[Order, PriceConfig]) -> None:
    assert_type(ctx.require(price), Priced)
    assert_type(ctx.require(count), int)
    assert_type(ctx.optional(price), Priced | None)
    assert_type(ctx.require("price"), Any)
    assert_type(blocking.require(maybe), Priced | None)
    assert_type(count(blocking), int)
    assert_type(await ctx.step.run("a", priced_later, retries=3, backoff={"factor": 2}), Priced)
    assert_type(await ctx.step.run("b", name_of, lease="5m"), str)
    await ctx.step.run("c", lambda number=1: number)
    await ctx.step.run("d", lambda run: run.attempt)
    await ctx.step.run("e", lambda extra=1: priced_after(extra))
    assert_type(await ctx.step.run("f", any_list, returns=list[int]), list[int])
    assert_type(await ctx.step.run("j", lambda extra=1: priced_after(extra), returns=Priced), Priced)
    assert_type(blocking.step.run("g", priced_later), Priced)
    assert_type(blocking.step.run("h", name_of), str)
    assert_type(blocking.step.run("i", any_list, returns=Priced), Priced)
    assert_type(await ctx.storage.load("key", Priced), Priced)
    ctx.log("info", "priced", total=1)
    ctx.progress(50, "half", rows=3)
    ctx.annotate("decision.outcome", {"any": ["json"]})


async def called(ctx: StageContext[Order, PriceConfig]) -> None:
    assert_type(price(ctx), Awaitable[Priced])
    assert_type(await price(ctx), Priced)


def annotated(ctx: StageContext[Order], key: TypedKey[float]) -> None:
    ctx.annotate(key, 0.5)
    ctx.annotate(key, None)
    ctx.annotate_many({key: 0.5})
    ctx.annotate_many({"a": 1, "b": None}, emit_event=True)


async def body(ctx: StageContext[Order, PriceConfig]) -> Priced:
    return Priced(total=1)


defined = define_stage("defined", body)
assert_type(defined, Stage[Order, PriceConfig, Priced])
shorthand: Stage[Order, EmptyConfig, Priced] = define_stage(
    "shorthand", lambda ctx: Priced(total=sum(ctx.input.amounts)), input=Order, output=Priced
)
told = define_stage("told", body, input=Order, output=Priced, config=PriceConfig)
assert_type(told, Stage[Order, PriceConfig, Priced])

builder = define_workflow("orders", input=Order).pipe(price)
assert_type(builder, WorkflowBuilder)
workflow = builder.parallel(count, either).stage("last", body, name="Last").version("1").build()
assert_type(workflow, Workflow)
assert_type(WorkflowRegistry([workflow]).get("orders"), Workflow | None)
assert_type(StageIds(workflow).price, str)
anything: list[Stage[Any, Any, Any]] = [price, load, count]
