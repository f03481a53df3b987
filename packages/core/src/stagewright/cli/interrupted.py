"""What the command line says when it was interrupted before it could begin."""

import sys
from collections.abc import Sequence

__all__ = ["run_application"]


def run_application(arguments: Sequence[str]) -> int:
    """Say so.

    Returns:
        The exit code 130.
    """
    sys.stderr.write("stagewright: interrupted\n")
    return 130
