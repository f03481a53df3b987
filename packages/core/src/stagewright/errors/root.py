"""The root of all errors, and the parts that they are made of."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Problem", "StagewrightError", "listed"]


def listed(names: Iterable[str]) -> str:
    """Names for a message, or (none)."""
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
