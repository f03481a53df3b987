"""Where the kernel gets ids and randomness from."""

from typing import Protocol

__all__ = ["IdSource", "RandomSource"]


class IdSource(Protocol):
    """The only source of ids that the kernel knows; it is called from several threads."""

    def new_id(self) -> str:
        """An id that was never given before, of at most 64 characters; ids sort by the time they were made."""
        ...


class RandomSource(Protocol):
    """The only source of randomness that the kernel knows; it is called from several threads."""

    def uniform(self) -> float:
        """A number from 0 up to, not including, 1."""
        ...
