"""How results are written: for people on a terminal, plainly into a pipe."""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stagewright.cli.printable import one_line

__all__ = ["output_console", "plain_table"]

_PIPE_WIDTH: Final = 1_000


def output_console() -> Console:
    """The console of standard output; into a pipe, lines are neither wrapped nor coloured."""
    is_terminal = sys.stdout.isatty()
    return Console(
        width=None if is_terminal else _PIPE_WIDTH, highlight=False, markup=False, soft_wrap=not is_terminal
    )


def plain_table(
    head: Sequence[str], rows: Iterable[Sequence[str | Text]], *, whole: Collection[str] = ()
) -> Table:
    """A table without lines; cells are shown in one line, without control characters.

    Args:
        head: The columns' names.
        rows: The cells of each row.
        whole: Columns to copy from: a narrow terminal takes its width from the others, and cuts nothing off these.
    """
    table = Table(box=box.SIMPLE, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(
            one_line(name), no_wrap=name in whole, overflow="fold" if name in whole else "ellipsis"
        )
    for row in rows:
        table.add_row(*(Text(one_line(cell)) if isinstance(cell, str) else cell for cell in row))
    return table
