"""Who runs the body of a stage."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from stagewright.annotations import AnnotationInput
from stagewright.definitions import AbortSignal, Stage, Workflow
from stagewright.events import StageProgress
from stagewright.json_values import Json
from stagewright.ports.ai_calls import KernelServices
from stagewright.ports.blob_store import BlobStore
from stagewright.ports.clock import Clock
from stagewright.ports.ids import IdSource, RandomSource
from stagewright.ports.signals import SignalInbox
from stagewright.ports.step_ledger import StepLedger
from stagewright.records import ErrorRecord, LogRecord, StepOwner

__all__ = [
    "ActivityEnding",
    "ActivityExecutor",
    "ActivityOutcome",
    "ActivityRun",
    "BodyFailed",
    "BodyReturned",
    "BodySuspended",
    "BodyWaits",
    "StageResources",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResources:
    """What a body may touch while it runs.

    Attributes:
        blob_store: Behind `ctx.storage`.
        storage_prefix: What every key of `ctx.storage` starts with in the blob store.
        clock: The kernel's clock.
        ids: The kernel's ids.
        random: The kernel's randomness.
        step_ledger: Behind `ctx.step`; None if the kernel keeps no steps.
        signals: What was sent to this stage's steps.
        steps_prefix: What the keys of spilled results of this stage's steps start with in the blob store.
        spill_threshold_bytes: Results of steps with more bytes of JSON than this go to the blob store.
        services: Behind `ctx.ai` and `ctx.ai_logger`.
        write_logs: Stores log lines at once, apart from the stage's outcome; it may raise.
    """

    blob_store: BlobStore
    storage_prefix: str
    clock: Clock
    ids: IdSource
    random: RandomSource
    step_ledger: StepLedger | None
    signals: SignalInbox
    steps_prefix: str
    spill_threshold_bytes: float
    services: KernelServices
    write_logs: Callable[[Sequence[LogRecord]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRun:
    """One invocation of a body. All values are stored JSON; whoever runs the body reads and checks them.

    Attributes:
        workflow: The workflow of the run.
        stage: The stage whose body is to run.
        run_id: The run.
        stage_record_id: The stage's record.
        stage_number: The stage's place in the workflow, from 1.
        attempt: The stage's attempt, from 1.
        owner: The delivery of a job that is executed; None for an execution without one.
        definition_version: The version that the run is pinned to.
        input: The stage's input.
        config: The stage's config.
        workflow_input: The run's input.
        outputs: The outputs of the stages of earlier groups, by stage id.
        resume_state: What a suspended stage left for its resumption.
        abort: Set when the body shall stop; its outcome is discarded then.
        resources: What the body may touch.
    """

    workflow: Workflow
    stage: Stage[Any, Any, Any]  # Any: a workflow's stages have as many types as it has stages
    run_id: str
    stage_record_id: str
    stage_number: int
    attempt: int
    definition_version: str | None
    input: Json
    config: Json
    workflow_input: Json
    outputs: Mapping[str, Json]
    resume_state: Json
    abort: AbortSignal
    resources: StageResources
    owner: StepOwner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyReturned:
    """The body returned; its output fits the stage's schema and is stored JSON."""

    output: Json
    metrics: dict[str, Json] = field(default_factory=dict)
    artifacts: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodySuspended:
    """The body asked to be looked at again after `poll_interval`, and to fail after `max_wait`."""

    state: Json
    poll_interval: timedelta
    max_wait: timedelta | None
    metrics: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyWaits:
    """A durable step of the body waits; the body is invoked again when it is due.

    Attributes:
        step_id: The step, of several that wait the one whose wait ends first.
        next_poll_at: When the stage goes on, in UTC.
    """

    step_id: str
    next_poll_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyFailed:
    """The body raised, or one of its values doesn't fit its schema.

    Attributes:
        error: What is stored.
        retryable: Whether another attempt can help.
    """

    error: ErrorRecord
    retryable: bool


ActivityEnding: TypeAlias = BodyReturned | BodySuspended | BodyWaits | BodyFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityOutcome:
    """How an invocation ended, and what it said on the way.

    Attributes:
        ending: How it ended.
        progress: What it reported, in order.
        annotations: What it annotated, in order.
        logs: The log lines that weren't written while it ran.
    """

    ending: ActivityEnding
    progress: tuple[StageProgress, ...] = ()
    annotations: tuple[AnnotationInput, ...] = ()
    logs: tuple[LogRecord, ...] = ()


class ActivityExecutor(Protocol):
    """Runs bodies, here or elsewhere."""

    async def run(self, activity: ActivityRun) -> ActivityOutcome:
        """Run a body to its end. Whatever the body raises is an outcome.

        Raises:
            Exception: Only when the executor itself can't do it; nothing is recorded then, and the job's lease
                brings the stage to somebody else.
        """
        ...
