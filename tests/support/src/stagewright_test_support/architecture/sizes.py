"""Files and functions stay small; the few exceptions carry a reason and can only shrink."""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewright_test_support.architecture.repository import Repository

__all__ = ["FILE_LINES", "FUNCTION_LINES", "SizeException", "measure", "oversized", "read_exceptions"]

FILE_LINES = 500
FUNCTION_LINES = 60


@dataclass(frozen=True, slots=True)
class SizeException:
    """A file, or `file::qualified.name`, that may be larger than the rule, up to `lines`."""

    lines: int
    reason: str


def read_exceptions(path: Path) -> dict[str, SizeException]:
    with path.open("rb") as file:
        document = tomllib.load(file)
    return {
        where: SizeException(int(entry["lines"]), str(entry["reason"])) for where, entry in document.items()
    }


def measure(repository: Repository) -> dict[str, int]:
    """The lines of every Python file and, as `file::qualified.name`, of every function."""
    sizes: dict[str, int] = {}
    for module in repository.modules:
        sizes[module.where] = len(module.text.splitlines())
        for name, node in _functions(module.tree, ""):
            sizes[f"{module.where}::{name}"] = (node.end_lineno or node.lineno) - node.lineno + 1
    return sizes


def oversized(repository: Repository, exceptions: Mapping[str, SizeException]) -> list[str]:
    sizes = measure(repository)
    found: list[str] = []
    for where, lines in sizes.items():
        limit = FUNCTION_LINES if "::" in where else FILE_LINES
        allowed = exceptions[where].lines if where in exceptions else limit
        if lines > allowed:
            found.append(f"{where}: {lines} lines, at most {allowed}; it ends where its noun ends")
        elif where in exceptions and lines <= limit:
            found.append(f"{where}: {lines} lines need no exception any more; remove it")
    gone = sorted(set(exceptions) - set(sizes))
    found.extend(f"{where}: has an exception but doesn't exist" for where in gone)
    found.extend(f"{where}: an exception needs a reason" for where, e in exceptions.items() if not e.reason)
    return found


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)
