"""Made-up trees that show the checks to bite."""

from collections.abc import Callable, Mapping
from pathlib import Path

from stagewright_test_support.architecture.repository import Repository

__all__ = ["MakeTree", "make_tree"]

MakeTree = Callable[[Mapping[str, str]], Repository]


def make_tree(root: Path, files: Mapping[str, str]) -> Repository:
    """Writes the files, given by path and text, under `root`."""
    for where, text in files.items():
        path = root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Repository(root)
