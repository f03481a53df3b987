"""Values that can't be kept or don't fit."""

from dataclasses import dataclass

from stagewright.errors.root import Problem, StagewrightError
from stagewright.errors.runs import NonRetryableError

__all__ = [
    "InvalidDurationError",
    "SchemaMismatchError",
    "ValueNotSerializableError",
]


@dataclass(eq=False)
class ValueNotSerializableError(NonRetryableError):
    """A value has no exact JSON form; a body that raises it is not tried again.

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
