"""Which workflows a process has."""

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

__all__ = ["EnumerableRegistry", "WorkflowRegistry"]

W = TypeVar("W", covariant=True)


class WorkflowRegistry(Protocol[W]):
    """Finds workflows by id. It may change while a kernel uses it: every command asks anew."""

    def get(self, id: str, /) -> W | None:
        """The workflow of that id, or None."""
        ...


@runtime_checkable
class EnumerableRegistry(Protocol[W]):
    """A registry that can list its workflows; only with this are claims restricted to what it serves."""

    def list(self) -> Sequence[W]:
        """All workflows."""
        ...
