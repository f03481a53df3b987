"""Each line that says `wrong` must fail to type-check, and no other may."""

from pydantic import BaseModel

from stagewright.annotations import TypedKey
from stagewright.definitions import (
    BlockingStageContext,
    NotReady,
    Ready,
    RetryPolicy,
    Stage,
    StageContext,
    StageResult,
    Suspend,
    WorkflowRegistry,
    define_workflow,
    stage,
)


def show(*values: object) -> None: ...


def show_two(first: int, second: int) -> None: ...


class Order(BaseModel):
    amounts: list[float]


class PriceConfig(BaseModel):
    currency: str = "EUR"


class Priced(BaseModel):
    total: float


@stage("price")
async def price(ctx: StageContext[Order, PriceConfig]) -> Priced:
    show(ctx.input.amount)  # wrong
    show(ctx.config.currancy)  # wrong
    show(ctx.inputs)  # wrong
    return Priced(total=sum(ctx.input.amounts))


@stage("count")
def count(ctx: BlockingStageContext[Order]) -> int:
    show(ctx.config.currency)  # wrong
    return 1


@stage("no-context")  # wrong
async def no_context(order: Order) -> Priced:
    return Priced(total=1)


@stage("two-parameters")  # wrong
async def two_parameters(ctx: StageContext[Order], more: int) -> Priced:
    return Priced(total=1)


@stage("sync-context")  # wrong
def sync_context(ctx: StageContext[None]) -> int:
    return 1


async def check(state: str, ctx: StageContext[Order]) -> Ready[Priced] | NotReady:
    return NotReady()


async def check_wrongly(state: str) -> NotReady:
    return NotReady()


stage("batch", mode="async-batch")  # wrong
stage("batch", check_completion=check)  # wrong
stage("batch", mode="async-batch", check_completion=check_wrongly)  # wrong
stage("batch", mode="batch")  # wrong
stage("price", retry=3)  # wrong
stage("price", timeout=[])  # wrong
stage("price", colour="red")  # wrong
stage(5)  # wrong


async def later(ctx: StageContext[Priced], blocking: BlockingStageContext[Order, PriceConfig]) -> None:
    total: str = ctx.require(price)  # wrong
    priced: Priced = ctx.optional(price)  # wrong
    ctx.require(5)  # wrong
    await blocking.storage.save("key", 1)  # wrong
    await blocking.step.sleep("pause", "1s")  # wrong
    blocking.step.run("a", int, retries="3")  # wrong
    await ctx.step.run("a", int, on_reclaim="never")  # wrong
    await ctx.step.run("a", show_two)  # wrong
    text: str = await ctx.step.run("a", int)  # wrong
    ctx.input = Priced(total=1)  # wrong
    await price(ctx)  # wrong
    show(total, priced, text)


def annotate(ctx: StageContext[Order], key: TypedKey[float]) -> None:
    ctx.annotate("key", object())  # wrong
    ctx.annotate_many({"key": object()})  # wrong


builder = define_workflow("orders", input=Order)
define_workflow("orders")  # wrong
builder.pipe("price")  # wrong
builder.pipe(later)  # wrong
builder.pipe(price, count)  # wrong
builder.parallel([price, count])  # wrong
builder.version(1)  # wrong
builder.id = "other"  # wrong
WorkflowRegistry([builder])  # wrong
price.id = "other"  # wrong
other: Stage[Order, PriceConfig, Order] = price  # wrong

RetryPolicy(max_attempts="three")  # wrong
RetryPolicy(retry_on="ValueError")  # wrong
StageResult(1)  # wrong
Suspend()  # wrong
NotReady(next_check_in=[])  # wrong
