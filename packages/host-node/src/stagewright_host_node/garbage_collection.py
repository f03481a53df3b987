"""Looking for garbage less often, in a process that is a worker and nothing else."""

import gc
from typing import Final

__all__ = ["settle_garbage_collection"]

_USUAL: Final = gc.get_threshold()
# A run of three stages makes a few thousand objects, hardly any of them in cycles.
_OBJECTS: Final = 10_000


def settle_garbage_collection() -> None:
    """Leave what there is by now out of garbage collection, and look after 10,000 new objects instead of after 700.

    To be called once, when all that lasts as long as the process has been imported and opened. Another threshold that
    the application has set stays.
    """
    gc.collect()
    gc.freeze()
    if gc.get_threshold() == _USUAL and 0 < _USUAL[0] < _OBJECTS:
        gc.set_threshold(_OBJECTS, *_USUAL[1:])
