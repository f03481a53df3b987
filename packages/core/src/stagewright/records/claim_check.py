"""Where a payload lies that is too large to be kept inline."""

from dataclasses import dataclass

__all__ = ["ClaimCheck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """A blob that stands for a value; a column of its own, never a marker inside the value.

    Attributes:
        key: The blob's key.
        size: Its length in bytes.
    """

    key: str
    size: int
