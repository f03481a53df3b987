"""Looking for garbage less often, in a process that is a worker and nothing else."""

import gc
from typing import Final

__all__ = ["settle_garbage_collection"]

_OF_PYTHON: Final = (700, 2_000)
"""How many new objects Python itself waits for, up to 3.12 and from then on."""

# A run of three stages makes a few thousand objects, hardly any of them in cycles.
_OBJECTS: Final = 10_000


def settle_garbage_collection() -> None:
    """Leave what there is by now out of garbage collection, and look after 10,000 new objects.

    To be called once, when all that lasts as long as the process has been imported and opened. Another threshold that
    the application has set stays.
    """
    gc.collect()
    gc.freeze()
    first, *others = gc.get_threshold()
    if first in _OF_PYTHON:
        gc.set_threshold(_OBJECTS, *others)
