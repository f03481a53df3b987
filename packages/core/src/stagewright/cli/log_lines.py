"""Log lines that nobody handles, as Python writes them to standard error, without control characters."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from stagewright.cli.printable import printable

__all__ = ["PrintableFormatter", "printable_log_lines"]


class PrintableFormatter(logging.Formatter):
    """A formatter whose lines have no control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


@contextmanager
def printable_log_lines() -> Iterator[None]:
    """Spell out control characters in the handler of last resort; handlers that a workflow sets up are its own."""
    handler = logging.lastResort
    if handler is None:
        yield
        return
    before = handler.formatter
    handler.setFormatter(PrintableFormatter())
    try:
        yield
    finally:
        handler.setFormatter(before)
