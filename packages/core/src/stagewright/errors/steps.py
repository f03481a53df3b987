"""What can go wrong with durable steps."""

from dataclasses import dataclass
from datetime import datetime

from stagewright.errors.root import StagewrightError
from stagewright.errors.runs import NonRetryableError

__all__ = [
    "DuplicateStepKeyError",
    "StepFailedError",
    "StepKindMismatchError",
    "StepLeaseLostError",
    "StepLedgerNotConfiguredError",
    "StepLedgerWriteError",
    "StepNotReplaySafeError",
    "StepResultNotSerializableError",
    "StepRowGoneError",
    "StepTimeoutError",
]


@dataclass(eq=False)
class DuplicateStepKeyError(NonRetryableError):
    """A body asked twice for a step of one id; the stage fails at once, also if the body goes on.

    Attributes:
        step_id: The id.
        first_kind: What the first request was for: `run`, `wait`, `signal` or `sleep`.
        first_position: Where it stood among the requests of this invocation, from 1.
        kind: What the second request was for.
        position: Where that stood.
    """

    step_id: str
    first_kind: str
    first_position: int
    kind: str
    position: int

    def __str__(self) -> str:
        return (
            f"step {self.step_id!r} is asked for twice in one invocation: as {self.first_kind} (request "
            f"{self.first_position}) and as {self.kind} (request {self.position}); give each step an id of its own, "
            'in a loop for instance f"send-{item_id}"'
        )


@dataclass(eq=False)
class StepKindMismatchError(NonRetryableError):
    """The ledger has a step of that id which is of another kind."""

    step_id: str
    kind: str
    stored_kind: str

    def __str__(self) -> str:
        return (
            f"step {self.step_id!r} is asked for as {self.kind}, and this run has it as {self.stored_kind}; "
            "give a step that does something else another id"
        )


@dataclass(eq=False)
class StepFailedError(StagewrightError):
    """A step failed before, for good; its body is not executed again for this attempt of the stage.

    Attributes:
        step_id: The step.
        type: The class name of the exception that its body raised.
        message: What that said.
    """

    step_id: str
    type: str | None
    message: str

    def __str__(self) -> str:
        told = self.message if self.type is None else f"{self.type}: {self.message}"
        return f"step {self.step_id!r} has failed: {told}"


@dataclass(eq=False)
class StepNotReplaySafeError(NonRetryableError):
    """A step with `on_reclaim="fail"` was begun by a worker that was lost, so it isn't executed again.

    Attributes:
        step_id: The step.
        external_key: What was given to other systems; look there whether the step took effect.
        lease_expires_at: When the lease of the lost execution ended, in UTC; None if it ended with its job's.
    """

    step_id: str
    external_key: str | None
    lease_expires_at: datetime | None

    def __str__(self) -> str:
        ended = (
            "with its job's" if self.lease_expires_at is None else f"at {self.lease_expires_at.isoformat()}"
        )
        return (
            f"step {self.step_id!r} was begun by an execution whose lease ended {ended}, and on_reclaim='fail' forbids "
            f"to execute it again; look for {self.external_key!r} in the other system whether it took effect"
        )


@dataclass(eq=False)
class StepTimeoutError(NonRetryableError):
    """What a step waited for did not come in time; it has failed for good, and its stage isn't tried again for it.

    Attributes:
        step_id: The step.
        kind: `wait` or `signal`.
        deadline_at: Until when it waited, in UTC.
    """

    step_id: str
    kind: str
    deadline_at: datetime | None

    def __str__(self) -> str:
        until = "its deadline" if self.deadline_at is None else self.deadline_at.isoformat()
        waited = "for a signal " if self.kind == "signal" else ""
        return f"step {self.step_id!r} waited {waited}until {until}, and it did not come in time"


@dataclass(eq=False)
class StepLeaseLostError(StagewrightError):
    """Another execution has this step by now; this one must do nothing more for it."""

    step_id: str

    def __str__(self) -> str:
        return f"step {self.step_id!r} belongs to another execution by now"


@dataclass(eq=False)
class StepLedgerWriteError(StagewrightError):
    """The ledger could not keep something of a step, which is no failure of the step itself.

    Attributes:
        step_id: The step.
        action: What could not be kept.
        problem: Why.
    """

    step_id: str
    action: str
    problem: str

    def __str__(self) -> str:
        return f"{self.action} of step {self.step_id!r} could not be kept: {self.problem}"


class StepRowGoneError(StepLedgerWriteError):
    """The step has no row any more: its run was purged, or its stage begins anew."""


@dataclass(eq=False)
class StepResultNotSerializableError(NonRetryableError):
    """A step's result, or the payload of a signal to it, has no exact JSON form or doesn't fit its type.

    A result that is refused fails its step for good; a payload that has no JSON form is refused at the call.

    Attributes:
        step_id: The step.
        path: Where inside the result, as `$.orders[2].amount`.
        problem: Why it can't be kept, and the fix.
    """

    step_id: str
    path: str
    problem: str

    def __str__(self) -> str:
        return f"the result of step {self.step_id!r} can't be stored: {self.path}: {self.problem}"


@dataclass(eq=False)
class StepLedgerNotConfiguredError(StagewrightError):
    """A body used `ctx.step` on a kernel that keeps no steps."""

    step_id: str

    def __str__(self) -> str:
        return f"step {self.step_id!r} needs Kernel(step_ledger=...), and none was given"
