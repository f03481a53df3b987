"""What stores refuse or can't do."""

from dataclasses import dataclass

from stagewright.errors.root import StagewrightError

__all__ = [
    "BlobAccessDeniedError",
    "BlobNotFoundError",
    "BlobStoreRefusedError",
    "BlobStoreUnavailableError",
    "DamagedBlobError",
    "DeadlockError",
    "DuplicateRecordError",
    "InvalidAICallError",
    "InvalidBlobKeyError",
    "NoKnownRunError",
    "OutcomeUnknownError",
    "OutputNotStoredError",
    "PersistenceUnavailableError",
    "RecordNotFoundError",
    "SessionRefusedError",
    "SpilledPayloadUnavailableError",
    "StaleVersionError",
    "SupersededError",
    "TransientError",
    "TransientPersistenceError",
]


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
class SessionRefusedError(StagewrightError):
    """A session or connection of the caller's can't be used for this; nothing was written to it.

    Attributes:
        session: What was given.
        problem: What is wrong with it, and the fix.
    """

    session: str
    problem: str

    def __str__(self) -> str:
        return f"{self.session} can't be used: {self.problem}"


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


class TransientPersistenceError(TransientError):
    """The database refused it this time: a conflict, a lock that wasn't given, a time limit of its own."""


class PersistenceUnavailableError(TransientPersistenceError):
    """The database couldn't be reached, has ended the connection, or had none to give in time."""


class DeadlockError(TransientPersistenceError):
    """Two transactions waited for each other and the store ended this one."""


@dataclass(eq=False)
class OutcomeUnknownError(StagewrightError):
    """The reply to a commit was lost: the change may have taken effect or not. Look before doing it again.

    A command with an idempotency key can be sent again at once; it gets the first one's answer if there is one.
    """

    problem: str

    def __str__(self) -> str:
        return f"whether the change took effect is unknown: {self.problem}"


@dataclass(eq=False)
class BlobNotFoundError(StagewrightError):
    """The blob store has nothing under that key."""

    key: str

    def __str__(self) -> str:
        return f"the blob store has nothing under the key {self.key!r}"


@dataclass(eq=False)
class DamagedBlobError(StagewrightError):
    """What a blob store has under a key, or on the way there, isn't what it has written.

    Attributes:
        key: The key.
        problem: What was found instead.
    """

    key: str
    problem: str

    def __str__(self) -> str:
        return f"the blob under the key {self.key!r} can't be had: {self.problem}"


@dataclass(eq=False)
class BlobStoreUnavailableError(TransientError):
    """The blob store couldn't be reached, was too busy, or gave up in the middle; the same call may succeed later.

    A write whose answer was lost may have taken effect; whoever repeats it writes the same bytes again.

    Attributes:
        problem: What happened.
        store: Which store, without anything secret.
        doing: What it was asked for, such as `read the blob 'a'`.
    """

    store: str
    doing: str

    def __str__(self) -> str:
        return f"{self.store} couldn't {self.doing} this time: {self.problem}"


@dataclass(eq=False)
class BlobStoreRefusedError(StagewrightError):
    """The blob store refused a call, and will refuse it again until somebody changes something.

    Attributes:
        problem: Why, in the store's words, and the fix where one is known.
        store: Which store, without anything secret.
        doing: What it was asked for, such as `read the blob 'a'`.
    """

    problem: str
    store: str
    doing: str

    def __str__(self) -> str:
        return f"{self.store} refused to {self.doing}: {self.problem}"


class BlobAccessDeniedError(BlobStoreRefusedError):
    """The blob store takes no credentials of this process for that, or there are none."""


@dataclass(eq=False)
class InvalidAICallError(StagewrightError, ValueError):
    """A model call that can't be accounted for.

    Attributes:
        field: Of `AICall`.
        value: What was given.
        problem: What is wrong with it.
    """

    field: str
    value: object
    problem: str

    def __str__(self) -> str:
        shown = repr(self.value)
        return f"AICall.{self.field} can't be {shown[:60]}{'...' * (len(shown) > 60)}: {self.problem}"


@dataclass(eq=False)
class InvalidBlobKeyError(StagewrightError):
    """A text that is no key of a blob; nothing was stored.

    Attributes:
        key: The key as it was given.
        problem: What is wrong with it.
    """

    key: str
    problem: str

    def __str__(self) -> str:
        shown = repr(self.key) if len(self.key) <= 80 else f"{self.key[:80]!r}…"
        return f"{shown} is no key for a blob: {self.problem}"


@dataclass(eq=False)
class NoKnownRunError(StagewrightError):
    """A database has none of the runs whose blobs are in a blob store; none was deleted.

    Attributes:
        runs: How many runs have blobs there.
    """

    runs: int

    def __str__(self) -> str:
        return (
            f"the blob store has blobs of {self.runs} runs and the database has none of these runs, so nothing was "
            "deleted; check that they belong together, and if they do, allow it by `all_unknown=True` or --all-unknown"
        )


@dataclass(eq=False)
class OutputNotStoredError(StagewrightError):
    """A body has returned, and the blob store didn't take its output or one of its artifacts.

    Attributes:
        stage_id: The stage.
        problem: What the store said.
        retryable: Whether another attempt of the stage may help; it doesn't where the store refuses until somebody
            changes something.
    """

    stage_id: str
    problem: str
    retryable: bool

    def __str__(self) -> str:
        return (
            f"what stage {self.stage_id!r} returned can't be kept in the blob store: {self.problem}; an output below "
            "the spill threshold needs no blob store"
        )


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
