"""What the command line says when the extra that it needs isn't installed."""

import sys
from collections.abc import Sequence

__all__ = ["run_application"]

_MESSAGE = """\
stagewright: the command line needs what the extra 'cli' brings; install it from a clone's root with
    pip install './packages/core[cli]'
"""


def run_application(arguments: Sequence[str]) -> int:
    """Say what to install.

    Returns:
        The exit code 2.
    """
    sys.stderr.write(_MESSAGE)
    return 2
