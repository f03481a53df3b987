"""Every error that the core raises, under one root.

Attributes come first and the message is built from them, so a caller decides by type and by attribute
and never by reading text.
"""

from stagewright.errors.assembly import (
    CapabilityMissingError,
    InvalidAdapterError,
    InvalidSettingError,
    MissingDriverError,
    PluginConflictError,
    PluginLoadError,
    PortNotServedError,
    UnknownSchemeError,
)
from stagewright.errors.commands import (
    AfterCommitError,
    IdempotencyInProgressError,
    IdempotencyKeyReusedError,
    InvalidCommandError,
    InvalidConfigError,
    InvalidInputError,
    InvalidOutputError,
)
from stagewright.errors.definitions import (
    DefinitionError,
    DefinitionVersionConflictError,
    DefinitionVersionMismatchError,
    UnknownStageError,
    UnknownWorkflowError,
)
from stagewright.errors.events import InvalidCursorError, PartialDeliveryError
from stagewright.errors.root import Problem, StagewrightError
from stagewright.errors.runs import (
    AIServicesNotConfiguredError,
    NonRetryableError,
    RunNotFoundError,
    RunNotRunningError,
    RunStalledError,
    RunStateError,
    StageAbortedError,
    StageOutputMissingError,
    StageTimeoutError,
)
from stagewright.errors.stores import (
    BlobNotFoundError,
    DeadlockError,
    DuplicateRecordError,
    InvalidBlobKeyError,
    OutcomeUnknownError,
    RecordNotFoundError,
    SpilledPayloadUnavailableError,
    StaleVersionError,
    SupersededError,
    TransientError,
)
from stagewright.errors.values import InvalidDurationError, SchemaMismatchError, ValueNotSerializableError

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
    "InvalidAdapterError",
    "InvalidBlobKeyError",
    "InvalidCommandError",
    "InvalidConfigError",
    "InvalidCursorError",
    "InvalidDurationError",
    "InvalidInputError",
    "InvalidOutputError",
    "InvalidSettingError",
    "MissingDriverError",
    "NonRetryableError",
    "OutcomeUnknownError",
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
