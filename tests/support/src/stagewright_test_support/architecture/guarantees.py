"""Every promise has a test and every marker names a promise; both are read, nothing is collected."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from stagewright_test_support.architecture.repository import Module, Repository

__all__ = ["Promise", "faults_in_register", "markers", "promises"]

_ENTRY = re.compile(r"^- `(?P<slug>[^`]*)` — (?P<sentence>.+)$")
_SLUG = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*$")


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the register."""

    slug: str
    sentence: str
    where: str


def promises(repository: Repository) -> list[Promise]:
    """The entries of `docs/guarantees/*.md` in order; the README explains the format and holds none."""
    found: list[Promise] = []
    for path in sorted((repository.root / "docs" / "guarantees").glob("*.md")):
        if path.name == "README.md":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            entry = _ENTRY.match(line)
            if entry is not None:
                found.append(Promise(entry["slug"], entry["sentence"], f"{repository.where(path)}:{number}"))
            elif line.startswith("- `"):
                found.append(Promise("", line, f"{repository.where(path)}:{number}"))
    return found


def markers(repository: Repository) -> list[tuple[str | None, str]]:
    """Each use of `mark.guarantee`: the slug, or `None` where it isn't one literal text, and the place."""
    found: list[tuple[str | None, str]] = []
    for module in repository.modules:
        if "guarantee" in module.text:
            found.extend(_markers_in(module))
    return found


def faults_in_register(repository: Repository) -> list[str]:
    register, used = promises(repository), markers(repository)
    slugs = [promise.slug for promise in register]
    found: list[str] = []
    for promise in register:
        subject = PurePosixPath(promise.where.rpartition(":")[0]).stem
        if not _SLUG.match(promise.slug):
            found.append(f"{promise.where}: an entry reads '- `subject.what-is-promised` — One sentence.'")
        elif promise.slug.split(".")[0] != subject:
            found.append(f"{promise.where}: {promise.slug} belongs in {promise.slug.split('.')[0]}.md")
        elif slugs.count(promise.slug) > 1:
            found.append(f"{promise.where}: {promise.slug} is promised twice")
        elif not promise.sentence.endswith("."):
            found.append(f"{promise.where}: {promise.slug} is no sentence")
        elif promise.slug not in {slug for slug, _ in used}:
            found.append(f"{promise.where}: {promise.slug} has no test")
    for slug, where in used:
        if slug is None:
            found.append(f"{where}: a guarantee is named by one literal text")
        elif slug not in slugs:
            found.append(f"{where}: no promise is called {slug}")
    return found


def _markers_in(module: Module) -> Iterator[tuple[str | None, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.guarantee"):
            match node.args:
                case [ast.Constant(value=str(slug))]:
                    yield slug, f"{module.where}:{node.lineno}"
                case _:
                    yield None, f"{module.where}:{node.lineno}"
