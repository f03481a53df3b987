"""The files and distributions of a checkout, found without git."""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ["Distribution", "Module", "Repository"]

_SKIPPED = {"__pycache__", "build", "dist", "node_modules", "site"}
_HIDDEN_BUT_OURS = {".github", ".ci", ".editorconfig", ".gitignore", ".pre-commit-config.yaml"}


@dataclass(frozen=True)
class Module:
    """One Python file."""

    path: Path
    where: str
    """The path from the repository's root, with slashes."""

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.where)


@dataclass(frozen=True)
class Distribution:
    """One folder with a pyproject.toml that is built and published."""

    folder: Path
    where: str

    @cached_property
    def project(self) -> dict[str, Any]:
        with (self.folder / "pyproject.toml").open("rb") as file:
            document = tomllib.load(file)
        project: dict[str, Any] = document.get("project", {})
        return project

    @property
    def name(self) -> str:
        return str(self.project.get("name", ""))

    @property
    def dependencies(self) -> list[str]:
        return list(self.project.get("dependencies", []))

    @property
    def extras(self) -> dict[str, list[str]]:
        return dict(self.project.get("optional-dependencies", {}))

    @property
    def packages(self) -> list[Path]:
        """The import packages under `src`."""
        folders = (path for path in (self.folder / "src").glob("[a-z]*") if path.is_dir())
        return sorted(path for path in folders if not path.name.endswith(".egg-info"))


@dataclass(frozen=True)
class Repository:
    """A checkout, or a made-up tree of the same shape."""

    root: Path

    @cached_property
    def distributions(self) -> list[Distribution]:
        """The published distributions: `packages/*` and `conformance`."""
        folders = [*sorted((self.root / "packages").glob("*")), self.root / "conformance"]
        return [
            Distribution(folder, self.where(folder))
            for folder in folders
            if (folder / "pyproject.toml").is_file()
        ]

    def where(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def files(self) -> Iterator[Path]:
        """Every file that belongs to the repository, in order."""
        yield from _walk(self.root)

    def module(self, path: Path) -> Module:
        return Module(path, self.where(path))

    @cached_property
    def modules(self) -> list[Module]:
        """Every Python file."""
        return [self.module(path) for path in self.files() if path.suffix == ".py"]

    @cached_property
    def source_modules(self) -> list[Module]:
        """The Python files that are shipped."""
        roots = [f"{distribution.where}/src/" for distribution in self.distributions]
        return [module for module in self.modules if any(module.where.startswith(root) for root in roots)]


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name not in _HIDDEN_BUT_OURS
        if hidden or path.name in _SKIPPED or path.name.endswith(".egg-info") or path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.suffix != ".pyc":
            yield path
