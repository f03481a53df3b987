"""Becomes another program, which on Linux gets a signal when the thread that started it ends.

It is run by its path with the standard library alone: `PARENT UID GID SIGNAL PROGRAM ARGUMENT…`, where a UID of
-1 keeps the account. A program of its own, because code between fork and exec isn't safe beside threads.
"""

import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Changes the account, asks for the signal, and becomes the program."""
    parent, uid, gid, farewell = (int(argument) for argument in arguments[:4])
    command = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        # After the account: a change of it clears the request.
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, farewell, 0, 0, 0) != 0:
            sys.exit(f"no signal at the parent's end: {os.strerror(ctypes.get_errno())}")
        if os.getppid() != parent:
            sys.exit("the parent has ended already")
    # Python ignores it, and a program inherits what is ignored.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
