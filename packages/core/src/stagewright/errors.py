"""Every error that the core raises, under one root.

Attributes come first and the message is built from them, so a caller decides by type and by attribute
and never by reading text.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

__all__ = [
    "AIServicesNotConfiguredError",
    "AfterCommitError",
    "BlobNotFoundError",
    "CapabilityMissingError",
    "DeadlockError",
    "DefinitionError",
    "DefinitionVersionConflictError",
    "DefinitionVersionMismatchError",
    "DuplicateRecordError",
    "IdempotencyInProgressError",
    "IdempotencyKeyReusedError",
    "InvalidCommandError",
    "InvalidConfigError",
    "InvalidCursorError",
    "InvalidDurationError",
    "InvalidInputError",
    "InvalidOutputError",
    "NonRetryableError",
    "PartialDeliveryError",
    "PluginConflictError",
    "PluginLoadError",
    "PortNotServedError",
    "Problem",
    "RecordNotFoundError",
    "RunNotFoundError",
    "RunNotRunningError",
    "RunStalledError",
    "RunStateError",
    "SchemaMismatchError",
    "SpilledPayloadUnavailableError",
    "StageAbortedError",
    "StageOutputMissingError",
    "StageTimeoutError",
    "StagewrightError",
    "StaleVersionError",
    "SupersededError",
    "TransientError",
    "UnknownSchemeError",
    "UnknownStageError",
    "UnknownWorkflowError",
    "ValueNotSerializableError",
]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "(none)"


def _rebuild(
    cls: type["StagewrightError"], args: tuple[object, ...], state: dict[str, object]
) -> "StagewrightError":
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class StagewrightError(Exception):
    """The root of every error that Stagewright raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a value.

    Attributes:
        path: Where inside the value, as `$.orders[2].amount`; `$` is the value itself.
        message: What is wrong there, and the fix where one is known.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


# Values


@dataclass(eq=False)
class ValueNotSerializableError(StagewrightError):
    """A value has no exact JSON form.

    Attributes:
        what: What the value is, such as `the output of stage 'price'`.
        path: Where inside the value, as `$.orders[2].amount`.
        problem: Why it can't be kept, and the fix.
    """

    what: str
    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.what} can't be stored: {self.path}: {self.problem}"


@dataclass(eq=False)
class SchemaMismatchError(StagewrightError):
    """A value doesn't fit the type that is declared for it.

    Attributes:
        what: What the value is, such as `the output of stage 'price'`.
        problems: What doesn't fit, and where.
    """

    what: str
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return f"{self.what} doesn't fit its schema: " + "; ".join(map(str, self.problems))


@dataclass(eq=False)
class InvalidDurationError(StagewrightError, ValueError):
    """A duration or a point in time that no engine can keep.

    Attributes:
        field: Which argument it was given for.
        value: What was given.
        problem: Why it is refused.
    """

    field: str
    value: object
    problem: str

    def __str__(self) -> str:
        try:
            shown = repr(self.value)
        except ValueError:
            # Python refuses to write out an integer of more than 4,300 digits.
            shown = "(an integer with thousands of digits)"
        return f"{self.field}={shown} {self.problem}"


# Definitions


@dataclass(eq=False)
class DefinitionError(StagewrightError):
    """A stage or a workflow is defined wrongly; all of its problems are listed at once.

    Attributes:
        subject: What is being defined, such as `workflow 'orders'` or `stage function price (orders.py:12)`.
        problems: One sentence each, with the fix.
    """

    subject: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.subject}: {self.problems[0]}"
        return f"{self.subject} has {len(self.problems)} problems:\n" + "\n".join(
            f"- {text}" for text in self.problems
        )


@dataclass(eq=False)
class DefinitionVersionMismatchError(StagewrightError):
    """This build presents another version of the workflow than the run is pinned to."""

    run_id: str
    workflow_id: str
    pinned_version: str
    live_version: str | None

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is pinned to version {self.pinned_version!r} of workflow {self.workflow_id!r}, and "
            f"this build serves {self.live_version!r}; run it with the build that serves the pinned version"
        )


@dataclass(eq=False)
class DefinitionVersionConflictError(StagewrightError):
    """A declared version is used again for another structure."""

    workflow_id: str
    version: str
    stored_structure_hash: str
    current_structure_hash: str

    def __str__(self) -> str:
        return (
            f"version {self.version!r} of workflow {self.workflow_id!r} is already registered with structure "
            f"{self.stored_structure_hash}, and this build has {self.current_structure_hash} under the same version; "
            "declare a new version with .version(...)"
        )


@dataclass(eq=False)
class UnknownWorkflowError(StagewrightError):
    """No workflow of that id is registered here."""

    workflow_id: str
    known: tuple[str, ...] | None = None

    def __str__(self) -> str:
        known = "" if self.known is None else f"; this registry has {_listed(self.known)}"
        return f"workflow {self.workflow_id!r} is not found in the registry{known}"


@dataclass(eq=False)
class UnknownStageError(StagewrightError):
    """The workflow has no stage of that id."""

    workflow_id: str
    stage_id: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"workflow {self.workflow_id!r} has no stage {self.stage_id!r}; it has {_listed(self.known)}"


# Commands


@dataclass(eq=False)
class InvalidCommandError(StagewrightError):
    """A command that can't be carried out as it was written; nothing was changed.

    Attributes:
        command_type: The command's type as given, or None where there was none.
        problems: What is wrong, by field.
    """

    command_type: str | None
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return f"command {self.command_type!r} is invalid: " + "; ".join(map(str, self.problems))


@dataclass(eq=False)
class _InvalidValueError(StagewrightError):
    subject: str
    problems: tuple[Problem, ...]
    value_name = "value"

    def __str__(self) -> str:
        return f"invalid {self.value_name} for {self.subject}: " + "; ".join(map(str, self.problems))

    @classmethod
    def of_unserializable(cls, subject: str, error: ValueNotSerializableError) -> Self:
        return cls(subject, (Problem(path=error.path, message=error.problem),))


class InvalidInputError(_InvalidValueError):
    """An input that doesn't fit its schema or can't be kept as JSON; `problems` says where."""

    value_name = "input"


class InvalidConfigError(_InvalidValueError):
    """A run config that names an unknown stage or doesn't fit a stage's config; `problems` says where."""

    value_name = "config"


class InvalidOutputError(_InvalidValueError):
    """A stage output that doesn't fit its schema or can't be kept as JSON; `problems` says where."""

    value_name = "output"


@dataclass(eq=False)
class IdempotencyInProgressError(StagewrightError):
    """The same key is being worked on; dispatch again once that has ended."""

    key: str
    command_type: str

    def __str__(self) -> str:
        return f"a {self.command_type!r} command with idempotency key {self.key!r} is in progress; try again shortly"


@dataclass(eq=False)
class IdempotencyKeyReusedError(StagewrightError):
    """The same key was used before with another command body."""

    key: str
    command_type: str

    def __str__(self) -> str:
        return (
            f"idempotency key {self.key!r} was used before for another {self.command_type!r} command; "
            "give this one a key of its own"
        )


@dataclass(eq=False)
class AfterCommitError(StagewrightError):
    """A command has committed, and something that was to follow could not be done; it is done later.

    Attributes:
        total: How much was to follow.
        failures: What went wrong, one error each.
    """

    total: int
    failures: tuple[Exception, ...]

    def __str__(self) -> str:
        reasons = "; ".join(f"{type(error).__name__}: {error}" for error in self.failures)
        return f"the command was carried out, but {len(self.failures)} of {self.total} follow-ups failed: {reasons}"


# Runs and stages


@dataclass(eq=False)
class RunNotFoundError(StagewrightError):
    """No run has that id."""

    run_id: str

    def __str__(self) -> str:
        return f"no run has the id {self.run_id!r}"


@dataclass(eq=False)
class RunStateError(StagewrightError):
    """The run's state doesn't allow what was asked."""

    run_id: str
    status: str
    needed: str

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status}, and this needs {self.needed}"


@dataclass(eq=False)
class RunNotRunningError(StagewrightError):
    """Rolls an outcome's transaction back because its run has ended meanwhile; never leaves the kernel."""

    run_id: str
    status: str | None

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status}, not RUNNING"


@dataclass(eq=False)
class RunStalledError(StagewrightError):
    """A run that was driven in this process can't be moved on by this process."""

    run_id: str
    status: str
    reason: str

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status} and can't go on here: {self.reason}"


@dataclass(eq=False)
class StageOutputMissingError(StagewrightError):
    """A body asked for the output of a stage that has none."""

    stage_id: str
    available: tuple[str, ...]

    def __str__(self) -> str:
        return f"there is no output of stage {self.stage_id!r}; outputs so far: {_listed(self.available)}"


@dataclass(eq=False)
class StageTimeoutError(StagewrightError):
    """One invocation of a body took longer than the stage's timeout."""

    stage_id: str
    seconds: float

    def __str__(self) -> str:
        return f"stage {self.stage_id!r} did not end within its timeout of {self.seconds:g} s"


@dataclass(eq=False)
class StageAbortedError(StagewrightError):
    """The body was told to stop; `reason` is `cancelled`, `lease-lost` or `shutdown`."""

    reason: str

    def __str__(self) -> str:
        return f"the stage was told to stop: {self.reason}"


class NonRetryableError(StagewrightError):
    """Raise this in a body when another attempt can't help: the stage fails at once."""


@dataclass(eq=False)
class AIServicesNotConfiguredError(StagewrightError):
    """A body touched `ctx.ai` or `ctx.ai_logger` on a kernel without that service."""

    attribute: str

    def __str__(self) -> str:
        return f"ctx.{self.attribute} needs Kernel(services=KernelServices({self.attribute}=...)), and none was given"


# Stores


@dataclass(eq=False)
class RecordNotFoundError(StagewrightError):
    """A write names a record that doesn't exist."""

    entity: str
    id: str

    def __str__(self) -> str:
        return f"there is no {self.entity} {self.id!r} to write to"


@dataclass(eq=False)
class DuplicateRecordError(StagewrightError):
    """A record with this unique key exists already."""

    entity: str
    key: str

    def __str__(self) -> str:
        return f"a {self.entity} with the key {self.key!r} exists already"


@dataclass(eq=False)
class StaleVersionError(StagewrightError):
    """A guarded write found another version than it expected; nothing of its transaction is kept."""

    entity: str
    id: str
    expected: int
    actual: int | None

    def __str__(self) -> str:
        return f"{self.entity} {self.id!r} has version {self.actual}, not {self.expected} as expected"


@dataclass(eq=False)
class SupersededError(StagewrightError):
    """An acknowledgement inside a transaction came from somebody who no longer owns the job."""

    job_id: str

    def __str__(self) -> str:
        return f"job {self.job_id!r} is owned by another delivery now; this outcome is discarded"


@dataclass(eq=False)
class TransientError(StagewrightError):
    """The store couldn't do it this time and nothing was kept; the same call may succeed when repeated."""

    problem: str

    def __str__(self) -> str:
        return self.problem


class DeadlockError(TransientError):
    """Two transactions waited for each other and the store ended this one."""


@dataclass(eq=False)
class BlobNotFoundError(StagewrightError):
    """The blob store has nothing under that key."""

    key: str

    def __str__(self) -> str:
        return f"the blob store has nothing under the key {self.key!r}"


@dataclass(eq=False)
class SpilledPayloadUnavailableError(StagewrightError):
    """A claim check points to a blob that can't be had."""

    key: str
    problem: str

    def __str__(self) -> str:
        return (
            f"the payload stored under {self.key!r} can't be had: {self.problem}; every process that works on a run "
            "must use the same blob store"
        )


# Events


@dataclass(eq=False)
class PartialDeliveryError(StagewrightError):
    """A sink gave an event to some of its consumers; the next attempt sees them as `event.delivered_to`."""

    delivered: frozenset[str]
    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False)
class InvalidCursorError(StagewrightError):
    """A listing was asked to go on from a cursor that it never gave."""

    cursor: str

    def __str__(self) -> str:
        return f"{self.cursor!r} is not a cursor of this listing; give the next_cursor of its last page"


# Assembly and plugins


@dataclass(eq=False)
class CapabilityMissingError(StagewrightError):
    """An adapter lacks what the kernel needs of it."""

    adapter: str
    capability: str
    fix: str

    def __str__(self) -> str:
        return f"{self.adapter} doesn't offer {self.capability}; {self.fix}"


@dataclass(eq=False)
class PluginLoadError(StagewrightError):
    """A plugin was asked for that could not be loaded."""

    plugin: str
    problem: str

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} could not be loaded: {self.problem}"


@dataclass(eq=False)
class PluginConflictError(StagewrightError):
    """Two plugins claim the same thing."""

    claim: str
    plugins: tuple[str, str]

    def __str__(self) -> str:
        first, second = self.plugins
        return (
            f"{self.claim} is claimed by both {first!r} and {second!r}; remove one, or block it by name with "
            "STAGEWRIGHT_DISABLE_PLUGINS"
        )


@dataclass(eq=False)
class UnknownSchemeError(StagewrightError):
    """No installed adapter opens that URL."""

    url: str
    known: tuple[str, ...]
    failed_plugins: tuple[str, ...] = ()

    def __str__(self) -> str:
        failed = (
            f"; plugins that failed to load: {_listed(self.failed_plugins)}" if self.failed_plugins else ""
        )
        return f"no installed adapter opens {self.url!r}; schemes known here: {_listed(self.known)}{failed}"


@dataclass(eq=False)
class PortNotServedError(StagewrightError):
    """The adapter behind a URL doesn't offer that port."""

    port: str
    url: str
    served: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.url!r} can't serve as {self.port}; it serves {_listed(self.served)}"
