"""Lists of ids as bind parameters, in few lengths, so that few statements are compiled and prepared."""

from collections.abc import Sequence
from typing import Final

__all__ = ["id_list"]

_LARGEST_STEP: Final = 1_024


def id_list(ids: Sequence[str]) -> dict[str, str]:
    """The parameters `item_0`, `item_1` and so on of a statement for as many ids as the answer is long.

    It is as long as the next power of two, or beyond 1,024 the next multiple of it; the last id stands there for the
    missing ones. No ids are no parameters.
    """
    count = len(ids)
    if not count:
        return {}
    length = 1 << (count - 1).bit_length()
    if length > _LARGEST_STEP:
        length = -(-count // _LARGEST_STEP) * _LARGEST_STEP
    filled = [*ids, *[ids[-1]] * (length - count)]
    return {f"item_{number}": one for number, one in enumerate(filled)}
