"""Commands that can't be carried out as they were given."""

from dataclasses import dataclass
from typing import Self

from stagewright.errors.root import Problem, StagewrightError
from stagewright.errors.values import ValueNotSerializableError

__all__ = [
    "AfterCommitError",
    "IdempotencyInProgressError",
    "IdempotencyKeyReusedError",
    "InvalidCommandError",
    "InvalidConfigError",
    "InvalidInputError",
    "InvalidOutputError",
    "OwnTransactionsError",
]


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
    """An output, metric or artifact that does not fit its schema or has no exact JSON form; `problems` says where."""

    value_name = "output"

    def __str__(self) -> str:
        return f"{self.subject} is refused: " + "; ".join(map(str, self.problems))


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
class OwnTransactionsError(StagewrightError):
    """A command that has transactions of its own was dispatched in a transaction of the caller's; nothing was done."""

    command_type: str

    def __str__(self) -> str:
        return (
            f"{self.command_type!r} has short transactions of its own, in which it claims, runs, publishes or deletes, "
            "and so can't be a part of yours; dispatch it with the kernel itself, not with what its `using` gave"
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
