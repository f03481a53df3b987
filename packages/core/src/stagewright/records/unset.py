"""The mark of a field that a patch leaves alone, so that None can be written."""

from enum import Enum
from typing import Any, Final, Literal, TypeAlias

__all__ = ["UNSET", "Unset", "set_fields"]


class _Unset(Enum):
    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


Unset: TypeAlias = Literal[_Unset.UNSET]
UNSET: Final = _Unset.UNSET


def set_fields(patch: Any) -> dict[str, Any]:  # Any: a patch's fields have as many types as its record's
    """The fields of a patch dataclass that are to be written, by name."""
    names = patch.__dataclass_fields__
    return {name: value for name in names if (value := getattr(patch, name)) is not UNSET}
