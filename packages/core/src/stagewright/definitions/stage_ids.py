"""Stage ids as attributes, so that a misspelt one is an error where it stands."""

from collections.abc import Iterator
from typing import Final

from stagewright.definitions.identifiers import stage_id_problem
from stagewright.definitions.workflow import Workflow
from stagewright.errors import DefinitionError, UnknownStageError

__all__ = ["StageIds"]


class StageIds:
    """The ids of a workflow's stages, or any given ids: `StageIds(workflow).score_fraud` is `"score-fraud"`.

    An attribute is the id with hyphens as underscores, in lower case or in capitals.
    """

    __slots__ = ("_by_name", "_ids", "_owner")

    def __init__(self, source: Workflow | str, /, *ids: str) -> None:
        """Take the ids of a workflow, or the ids as they are given.

        Raises:
            DefinitionError: If an id isn't valid, or two of them have one attribute name.
        """
        owner, first = (source.id, source.stage_ids) if isinstance(source, Workflow) else ("(ids)", (source,))
        self._owner: Final = owner
        self._ids: Final = tuple(dict.fromkeys((*first, *ids)))
        self._by_name: Final[dict[str, str]] = {}
        problems = [problem for problem in map(stage_id_problem, self._ids) if problem is not None]
        for id in self._ids:
            name = str(id).replace("-", "_")
            if self._by_name.setdefault(name, id) != id:
                problems.append(
                    f"the ids {self._by_name[name]!r} and {id!r} have one attribute name, {name!r}"
                )
            self._by_name.setdefault(name.upper(), id)
        if problems:
            raise DefinitionError("StageIds", tuple(problems))

    def check(self, id: str, /) -> str:
        """Return the id itself.

        Raises:
            UnknownStageError: If it is none of these; it names those there are.
        """
        if id not in self._ids:
            raise UnknownStageError(self._owner, id, self._ids)
        return id

    def __getattr__(self, name: str) -> str:
        if not name.startswith("__"):
            by_name: dict[str, str] = object.__getattribute__(self, "_by_name")
            if name in by_name:
                return by_name[name]
            raise AttributeError(
                f"there is no stage id for the attribute {name!r}; there are {', '.join(by_name)}"
            )
        raise AttributeError(name)

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._by_name})

    def __repr__(self) -> str:
        return f"StageIds({', '.join(map(repr, self._ids))})"
