"""A signal that its step has yet to take."""

from dataclasses import dataclass
from datetime import datetime

from stagewright.json_values import Json
from stagewright.records.claim_check import ClaimCheck

__all__ = ["SignalRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRecord:
    """A signal that came before its step waited; (run, stage, step) is unique, and it is gone once its step has it.

    Attributes:
        id: The record's id.
        run_id: The run it was sent to.
        stage_id: The stage, which may not have begun.
        step_id: The step of that stage.
        payload: What the step returns, unless it is spilled.
        payload_claim: Where a payload lies that was too large to be kept inline.
        created_at: When it was accepted, in UTC.
    """

    id: str
    run_id: str
    stage_id: str
    step_id: str
    created_at: datetime
    payload: Json = None
    payload_claim: ClaimCheck | None = None
