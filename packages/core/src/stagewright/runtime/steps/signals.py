"""`ctx.step.wait_for_signal`: a deadline that is stored once, and a payload that somebody sends."""

from dataclasses import replace
from typing import Any

from stagewright.definitions import Schema
from stagewright.duration import add_duration
from stagewright.errors import StepResultNotSerializableError
from stagewright.records import StepPatch, StepRecord
from stagewright.runtime.failure import describe_exception
from stagewright.runtime.steps.endings import (
    NOT_SERIALIZABLE,
    Answer,
    Failure,
    Settled,
    Wait,
    stored_failure,
)
from stagewright.runtime.steps.function import load_payload
from stagewright.runtime.steps.invocation import StepInvocation
from stagewright.runtime.steps.options import SignalOptions
from stagewright.runtime.steps.parking import StepCall
from stagewright.runtime.steps.results import load_result

__all__ = ["receive_signal"]


async def receive_signal(
    invocation: StepInvocation, call: StepCall, schema: Schema[Any], options: SignalOptions
) -> Settled:
    """The payload, or until when to wait for it, or that it didn't come in time."""
    resources = invocation.resources
    row = await invocation.row_or_new(call, lambda: _first_row(invocation, call, options))
    if row.status == "pending":
        # Looked for only when the row is there for every signal to see: what comes later finds the row.
        deadline = row.deadline_at
        is_over = deadline is not None and resources.clock.now() >= deadline
        if is_over or await resources.signals.has(call.step_id):
            row = await resources.signals.settle(row)
            if row.status != "pending":
                invocation.parking.note_recorded()
    if row.status == "completed":
        payload = await load_result(resources, row)
        try:
            return Answer(load_payload(call.step_id, schema, payload))
        except StepResultNotSerializableError as error:
            return Failure(await _recorded(invocation, row, error))
        except Exception as error:
            return Failure(error)
    if row.status == "failed":
        return Failure(stored_failure(row))
    until = add_duration(resources.clock.now(), options.keepalive, field="keepalive")
    return Wait(min(until, row.deadline_at or until))


async def _recorded(
    invocation: StepInvocation, row: StepRecord, error: StepResultNotSerializableError
) -> Exception:
    """Make the step a failed one, so that a redrive drops it and another signal can take its place."""
    resources = invocation.resources
    described = describe_exception(error, code=NOT_SERIALIZABLE, stage_id=invocation.activity.stage.id)
    patch = StepPatch(
        updated_at=resources.clock.now(), status="failed", error=described, result=None, result_claim=None
    )
    _, current = await invocation.ledger(row.step_id).change(
        row, patch, attempt=row.attempt, what="the failure"
    )
    return stored_failure(current) if current.status == "failed" else error


def _first_row(invocation: StepInvocation, call: StepCall, options: SignalOptions) -> StepRecord:
    row = invocation.first_row(call, "pending")
    return replace(row, deadline_at=add_duration(row.created_at, options.timeout, field="timeout"))
