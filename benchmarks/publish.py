"""Puts what was measured into the documents, from where the benchmarks wrote it: `python -m benchmarks.publish`."""

import argparse
import json
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scaling_plot import plot_of_json

__all__ = ["block_of", "main", "publish"]

_ROOT = Path(__file__).resolve().parents[1]
_ROWS: dict[str, Collection[str]] = {
    "comparison": ("three", "steps", "fan-out", "backlog", "first-line", "idle-three", "memory", "import"),
    "scaling": ("processes", "finished", "pending", "suspended"),
}


def publish(measured: Path, docs: Path) -> list[str]:
    """Replace the tables of the page on performance, and draw its plot anew.

    Args:
        measured: The folder of `comparison.json` and `scaling.json`, with their Markdown beside them.
        docs: The folder of `performance.md`.

    Returns:
        What was put there, of the two.

    Raises:
        SystemExit: If there is none of them, or one that lacks rows: a page is of one run.
    """
    page = docs / "performance.md"
    text = page.read_text(encoding="utf-8")
    found = [name for name in _ROWS if (measured / f"{name}.json").is_file()]
    if not found:
        raise SystemExit(f"{measured} has neither comparison.json nor scaling.json")
    plot = None
    for name in found:
        told: dict[str, Any] = json.loads((measured / f"{name}.json").read_text(encoding="utf-8"))
        lacking = [key for key in _ROWS[name] if key not in [row["key"] for row in told["rows"]]]
        if lacking:
            raise SystemExit(f"{name}.json lacks {', '.join(lacking)}; measure all rows in one run")
        text = _with_block(text, name, (measured / f"{name}.md").read_text(encoding="utf-8"))
        plot = plot_of_json(told) if name == "scaling" else plot
    page.write_text(text, encoding="utf-8")
    if plot is not None:
        (docs / "scaling.svg").write_text(plot, encoding="utf-8")
    return found


def block_of(page: str, name: str) -> str:
    """What is between the two marks of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    _, _, rest = page.partition(begin)
    block, is_marked, _ = rest.partition(end)
    if not is_marked:
        raise SystemExit(f"the page has no place for {name}: {begin.strip()} and {end.strip()}")
    return block


def _with_block(page: str, name: str, told: str) -> str:
    """The page with other lines between the marks, whose headings are one deeper."""
    block = block_of(page, name)
    before, mark, rest = page.partition(f"<!-- {name} -->\n")
    deeper = re.sub(r"^#", "##", told.strip(), flags=re.MULTILINE)
    return f"{before}{mark}\n{deeper}\n\n{rest.removeprefix(block)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Put into `docs` what is in `build/bench`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description=__doc__)
    parser.add_argument("--measured", type=Path, default=_ROOT / "build" / "bench", metavar="FOLDER")
    parser.add_argument("--docs", type=Path, default=_ROOT / "docs", metavar="FOLDER")
    options = parser.parse_args(arguments)
    for name in publish(options.measured, options.docs):
        sys.stdout.write(f"{name}: put into {options.docs / 'performance.md'}; read what is said around it\n")


if __name__ == "__main__":
    main()
