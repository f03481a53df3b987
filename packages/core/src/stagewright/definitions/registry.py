"""The workflows that one process serves."""

import builtins
from collections.abc import Iterable

from stagewright.definitions.workflow import Workflow
from stagewright.errors import DefinitionError

__all__ = ["WorkflowRegistry"]


class WorkflowRegistry:
    """Workflows by id.

    Any object with `get(id)` serves as a registry; one without `list()` claims whatever there is to claim.
    """

    def __init__(self, workflows: Iterable[Workflow] = ()) -> None:
        """Register workflows; the same object twice is fine.

        Raises:
            DefinitionError: If two workflows share an id, or something is no workflow.
        """
        self._workflows: dict[str, Workflow] = {}
        problems: list[str] = []
        for workflow in workflows:
            if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance] - untyped callers
                problems.append(f"{workflow!r} is no workflow; a builder becomes one with .build()")
            elif self._workflows.setdefault(workflow.id, workflow) is not workflow:
                problems.append(f"two workflows have the id {workflow.id!r}; give one of them another id")
        if problems:
            raise DefinitionError("the workflow registry", tuple(problems))

    def get(self, id: str) -> Workflow | None:
        """The workflow of that id, or None."""
        return self._workflows.get(id)

    def list(self) -> builtins.list[Workflow]:
        """All workflows, in the order they were given."""
        return [*self._workflows.values()]
