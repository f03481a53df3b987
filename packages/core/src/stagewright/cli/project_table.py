"""The table `[tool.stagewright]` of the nearest pyproject.toml."""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final

__all__ = ["ProjectTable", "ProjectTableError", "read_project_table"]

_PARENTS_SEARCHED: Final = 8


class ProjectTableError(ValueError):
    """A pyproject.toml that can't be read, or whose `tool.stagewright` is no table."""


@dataclass(frozen=True, slots=True)
class ProjectTable:
    """What a project says.

    Attributes:
        file: The pyproject.toml; None without one.
        values: What it says, by name.
    """

    file: Path | None = None
    values: Mapping[str, object] = field(default_factory=dict)

    def unread(self, known: Collection[str]) -> tuple[str, ...]:
        """What it says that is none of the names that somebody reads, each with the name that may be meant.

        Tables below it belong to others, and are not looked at.
        """
        found = []
        for name, value in self.values.items():
            if name in known or isinstance(value, dict):
                continue
            close = get_close_matches(name.replace("-", "_"), known, n=1)
            found.append(f"{name} (do you mean {close[0]}?)" if close else name)
        return tuple(found)


def read_project_table() -> ProjectTable:
    """The table of the first pyproject.toml in the current folder and those above it.

    Raises:
        ProjectTableError: Naming the file and what is wrong with it.
    """
    here = Path.cwd()
    for folder in (here, *here.parents[:_PARENTS_SEARCHED]):
        file = folder / "pyproject.toml"
        if file.is_file():
            return ProjectTable(file, _table_of(file))
    return ProjectTable()


def _table_of(file: Path) -> Mapping[str, object]:
    try:
        found: Mapping[str, object] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ProjectTableError(f"the settings of {file} can't be read: {error}") from error
    tool = _table_in(file, found, "tool", "tool")
    return _table_in(file, tool, "stagewright", "tool.stagewright")


def _table_in(file: Path, table: Mapping[str, object], name: str, path: str) -> Mapping[str, object]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise ProjectTableError(
            f"{file} has {path} = {found!r}, which must be a table; write [tool.stagewright] and the settings below it"
        )
    return found
