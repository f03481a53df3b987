"""The exception by which a step ends an invocation of its stage without failing it."""

from datetime import datetime

__all__ = ["StepSuspended", "is_step_control_flow"]


class StepSuspended(BaseException):
    """A step waits; the stage is suspended until `next_poll_at`.

    It is no `Exception`, so that `except Exception` in a body lets it pass.

    Attributes:
        step_id: The step that waits.
        next_poll_at: When it is looked at next, in UTC.
    """

    def __init__(self, step_id: str, next_poll_at: datetime) -> None:
        super().__init__(f"step {step_id!r} waits until {next_poll_at.isoformat()}")
        self.step_id = step_id
        self.next_poll_at = next_poll_at


def is_step_control_flow(error: BaseException) -> bool:
    """Whether an exception is a suspension, or a group that holds one: let it pass, it is no failure."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_step_control_flow(member) for member in error.exceptions)
    return isinstance(error, StepSuspended)
