"""What a history is made of, as data: workflows, and what is done with their runs, one action after the other.

Runs, stages and deliveries are named by numbers, taken modulo what there is by then, so that every history can be
played.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stagewright.json_values import Json

__all__ = [
    "Action",
    "Annotate",
    "Beat",
    "Cancel",
    "ClaimRuns",
    "Create",
    "Deploy",
    "EnqueueOwed",
    "ExecuteHeld",
    "ExecuteUnasked",
    "FlowSpec",
    "Flush",
    "History",
    "Hold",
    "ListAll",
    "Pass",
    "Poll",
    "Purge",
    "ReapLeases",
    "ReapStuck",
    "Redrive",
    "Replay",
    "RerunFromStage",
    "Signal",
    "StageSpec",
    "StepSpec",
    "Take",
    "Tick",
    "Transition",
    "Work",
]


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """One thing that a body does.

    Attributes:
        kind: What; `run`, `wait`, `signal` and `sleep` are durable steps.
        seconds: How long it sleeps, or until when it gives up waiting.
        fails: How often its function raises before it returns; of a wait, how often it isn't ready.
        retries: How often its function may be called again.
        value: What it gives or says.
    """

    kind: Literal["run", "wait", "signal", "sleep", "annotate", "log", "progress", "save"]
    seconds: int = 5
    fails: int = 0
    retries: int = 0
    value: Json = None


@dataclass(frozen=True, kw_only=True)
class StageSpec:
    """A stage.

    Attributes:
        steps: What its body does.
        fails: How often its body raises before it returns; of a batch, how often it isn't ready.
        is_fatal: Whether it raises what nothing helps against.
        is_batch: Whether its work goes on elsewhere, and is asked about.
        output: What it returns, beside what its steps gave.
        max_attempts: How often it may fail.
        max_worker_losses: How often its worker may be lost.
        delay: The pause before another attempt, in seconds.
    """

    steps: tuple[StepSpec, ...] = ()
    fails: int = 0
    is_fatal: bool = False
    is_batch: bool = False
    output: Json = None
    max_attempts: int = 2
    max_worker_losses: int = 2
    delay: int = 0


@dataclass(frozen=True, kw_only=True)
class FlowSpec:
    """A workflow: groups of stages."""

    groups: tuple[tuple[StageSpec, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Create:
    """Create a run; a key that was used before asks for what it answered."""

    flow: int = 0
    input: Json = None
    priority: int = 5
    key: str | None = None
    annotations: dict[str, Json] | None = None


@dataclass(frozen=True)
class ClaimRuns:
    limit: int = 1


@dataclass(frozen=True)
class Work:
    """Claim runs and jobs and execute them, one after the other, at most so often.

    With `goes_on` jobs are handed over with the claim of their run, and with the outcome of the stage before.
    """

    times: int = 3
    goes_on: bool = False


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Take jobs without executing them yet."""

    worker: str
    limit: int = 1


@dataclass(frozen=True, kw_only=True)
class Take:
    """Set runs going and take up to so many of their jobs with them, without executing them yet."""

    worker: str
    limit: int = 1


@dataclass(frozen=True, kw_only=True)
class ExecuteHeld:
    """Execute a job that was taken before, perhaps long before; with `keeps` it may be executed again.

    With `goes_on` what follows is taken, too, without executing it yet.
    """

    job: int = 0
    keeps: bool = False
    goes_on: bool = False
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExecuteUnasked:
    """Execute a stage that was begun, without any job."""

    run: int = 0
    stage: int = 0


@dataclass(frozen=True)
class Beat:
    """Renew the lease of a job that was taken before."""

    job: int = 0


@dataclass(frozen=True)
class Cancel:
    run: int = 0


@dataclass(frozen=True, kw_only=True)
class Redrive:
    run: int = 0
    origin: Literal["failure", "start", "stage"] = "failure"
    stage: int = 0
    version: Literal["pinned", "latest", "unknown"] = "pinned"
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class RerunFromStage:
    run: int = 0
    stage: int = 0
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Signal:
    run: int = 0
    stage: int = 0
    step: int = 0
    payload: Json = None


@dataclass(frozen=True, kw_only=True)
class Annotate:
    run: int = 0
    name: str = "said"
    value: Json = 1
    key: str | None = None
    emits: bool = False


@dataclass(frozen=True)
class Transition:
    run: int = 0


@dataclass(frozen=True)
class Poll:
    limit: int = 3


@dataclass(frozen=True)
class EnqueueOwed:
    owed_for: int = 0


@dataclass(frozen=True, kw_only=True)
class ReapLeases:
    after: int = 30
    absolute: int | None = None


@dataclass(frozen=True)
class ReapStuck:
    after: int = 30


@dataclass(frozen=True)
class Tick:
    """All that a host looks after at once."""


@dataclass(frozen=True, kw_only=True)
class Flush:
    """Deliver events to a sink that accepts so many and then refuses so many, the second time in part."""

    limit: int = 100
    accepts: int = 0
    refuses: int = 0


@dataclass(frozen=True)
class Replay:
    limit: int = 2


@dataclass(frozen=True, kw_only=True)
class Purge:
    older_than: int = 0
    limit: int = 1


@dataclass(frozen=True)
class Pass:
    """Time passes; without an action of this kind it stands still."""

    seconds: int = 1


@dataclass(frozen=True)
class Deploy:
    """From now on another build works, which has a later version of each workflow, or the first build again."""


@dataclass(frozen=True)
class ListAll:
    """Ask for versions, and for runs page by page."""

    limit: int = 1


Action: TypeAlias = (
    Create
    | ClaimRuns
    | Work
    | Hold
    | Take
    | ExecuteHeld
    | ExecuteUnasked
    | Beat
    | Cancel
    | Redrive
    | RerunFromStage
    | Signal
    | Annotate
    | Transition
    | Poll
    | EnqueueOwed
    | ReapLeases
    | ReapStuck
    | Tick
    | Flush
    | Replay
    | Purge
    | Pass
    | Deploy
    | ListAll
)


@dataclass(frozen=True, kw_only=True)
class History:
    """Workflows, and what is done."""

    flows: tuple[FlowSpec, ...]
    actions: tuple[Action, ...]
