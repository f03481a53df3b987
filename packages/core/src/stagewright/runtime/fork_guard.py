"""A child that a body forked ends where the body ends, and never goes on as a second worker."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["FORKED_CHILD_EXIT", "ends_in_this_process"]

FORKED_CHILD_EXIT: Final = 70
"""The exit code of such a child; `EX_SOFTWARE` of sysexits."""


@contextmanager
def ends_in_this_process(what: str) -> Iterator[None]:
    """End the process, should the block be left in another one than it was entered in.

    The child of `os.fork` has copies of its parent's event loop and connections. Were it to return to them, it would
    take the parent's signals and answers, and send on its sockets.

    Args:
        what: What runs in the block, for the one line on standard error.
    """
    home = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != home:
            _leave(what, home)


def _leave(what: str, home: int) -> None:
    line = (
        f"stagewright: {what} was forked from process {home} and came back in process {os.getpid()}, which ends here; "
        "end a forked child by os._exit, or start it by subprocess or multiprocessing\n"
    )
    try:
        # The buffers of the streams may hold what is the parent's to write.
        os.write(2, line.encode("utf-8", "backslashreplace"))
    finally:
        os._exit(FORKED_CHILD_EXIT)
