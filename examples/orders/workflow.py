"""Orders: a payment that is charged once whatever is killed, a settlement that is waited for, an approval by a person.

stagewright run examples/orders/workflow.py:workflow --input order_id=17 --input customer=Ada --input 'lines=["9.90"]'
"""

import json
import os
import urllib.request
from decimal import Decimal

from pydantic import BaseModel

from stagewright import BlockingStageContext, StageContext, StepRun, define_workflow, stage

PROVIDER = os.environ.get("ORDERS_PROVIDER", "http://127.0.0.1:8099")


class Order(BaseModel):
    """What a customer wants; prices are decimal text."""

    order_id: str
    customer: str
    lines: list[Decimal]


class Priced(BaseModel):
    """An order and what it costs."""

    order: Order
    total: Decimal


class Charge(BaseModel):
    """What the provider says of a charge."""

    id: str
    customer: str
    amount: Decimal
    state: str


class Approval(BaseModel):
    """Who lets a large order go."""

    by: str


class ApprovalConfig(BaseModel):
    """Orders above this wait for somebody's approval."""

    above: Decimal = Decimal(1000)


class Receipt(BaseModel):
    """What the customer gets."""

    order_id: str
    charge_id: str
    total: Decimal
    approved_by: str | None


@stage("price")
async def price(ctx: StageContext[Order]) -> Priced:
    """Add up."""
    return Priced(order=ctx.input, total=sum(ctx.input.lines, Decimal(0)))


@stage("approve")
async def approve(ctx: StageContext[Priced, ApprovalConfig]) -> Approval | None:
    """Let large orders wait for the signal `approval`."""
    if ctx.input.total <= ctx.config.above:
        return None
    return await ctx.step.wait_for_signal("approval", timeout="3d", returns=Approval)


@stage("pay")
def pay(ctx: BlockingStageContext[Approval | None]) -> Charge:
    """Charge the customer once, and wait until the money has come."""
    priced = ctx.require(price)

    def charge(run: StepRun) -> Charge:
        # The worker may be killed when the provider has charged and before that is recorded. The next execution
        # gives the provider the same key, which answers what it has done.
        body = {"customer": priced.order.customer, "amount": str(priced.total)}
        return _ask("/charges", body, key=run.external_key)

    made = ctx.step.run(
        "charge", charge, retries=8, retry_delay="250ms", backoff={"factor": 2, "max_delay": "5s"}
    )
    return ctx.step.wait_for(
        "settled",
        poll=lambda: _ask(f"/charges/{made.id}"),
        ready=lambda charge: charge.state == "settled",
        every="250ms",
        timeout="1h",
        returns=Charge,
    )


@stage("ship")
async def ship(ctx: StageContext[Charge]) -> Receipt:
    """Write the receipt."""
    approval = ctx.require(approve)
    order = ctx.require(price).order
    return Receipt(
        order_id=order.order_id,
        charge_id=ctx.input.id,
        total=ctx.input.amount,
        approved_by=None if approval is None else approval.by,
    )


def _ask(path: str, body: dict[str, str] | None = None, *, key: str = "") -> Charge:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(PROVIDER + path, data, {"Idempotency-Key": key})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return Charge.model_validate_json(answer.read())


workflow = define_workflow("orders", input=Order).pipe(price).pipe(approve).pipe(pay).pipe(ship).build()
