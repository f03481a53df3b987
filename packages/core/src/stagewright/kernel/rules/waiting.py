"""When a stage that waits may go on."""

from datetime import datetime

from stagewright.records import StageRecord

__all__ = ["is_due"]


def is_due(stage: StageRecord, now: datetime) -> bool:
    """Whether a SUSPENDED stage has nothing left to wait for; without a time of its own it was handed over already."""
    return stage.next_poll_at is None or stage.next_poll_at <= now
