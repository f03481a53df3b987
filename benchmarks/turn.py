"""One turn of a contender, in a process of its own: `python -m benchmarks.turn MODULE:FUNCTION REQUEST`."""

import importlib
import sys
from collections.abc import Callable, Sequence

from benchmarks.figures import Figures, Request

__all__ = ["MARK", "main"]

MARK = "figures: "
"""What the line with the figures begins with, as a contender may write lines of its own."""


def main(arguments: Sequence[str]) -> None:
    """Call the function with the request, and tell its figures."""
    place, request = arguments
    module, _, name = place.partition(":")
    function: Callable[[Request], Figures] = getattr(importlib.import_module(module), name)
    figures = function(Request.from_text(request))
    sys.stdout.write(f"\n{MARK}{figures.as_text()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
