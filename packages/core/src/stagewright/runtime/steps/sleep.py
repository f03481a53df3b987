"""`ctx.step.sleep`: a wake-up time that is stored once."""

from dataclasses import replace
from datetime import datetime, timedelta

from stagewright.duration import add_duration
from stagewright.records import StepPatch, StepRecord
from stagewright.runtime.steps.invocation import StepInvocation
from stagewright.runtime.steps.parking import StepCall

__all__ = ["wake_time"]


async def wake_time(invocation: StepInvocation, call: StepCall, duration: timedelta) -> datetime | None:
    """Until when to sleep; None once that is over, which is recorded then."""
    ledger, clock = invocation.ledger(call.step_id), invocation.resources.clock
    row = await invocation.row_or_new(call, lambda: _first_row(invocation, call, duration))
    now = clock.now()
    if row.status != "pending":
        return None
    if row.deadline_at is not None and now < row.deadline_at:
        return row.deadline_at
    await ledger.change(row, StepPatch(updated_at=now, status="completed"), attempt=None, what="the end")
    invocation.parking.note_recorded()
    return None


def _first_row(invocation: StepInvocation, call: StepCall, duration: timedelta) -> StepRecord:
    row = invocation.first_row(call, "pending")
    return replace(row, deadline_at=add_duration(row.created_at, duration, field="duration"))
