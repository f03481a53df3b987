"""What a caller gives as workflows, as a registry."""

from collections.abc import Iterable
from typing import TypeAlias, cast

from stagewright.definitions import Workflow, WorkflowBuilder, WorkflowRegistry
from stagewright.errors import DefinitionError
from stagewright.ports import WorkflowRegistry as RegistryPort

__all__ = ["Workflows", "registry_of"]

Workflows: TypeAlias = Workflow | Iterable[Workflow] | RegistryPort[Workflow]
"""What a process serves: a workflow, several, or any object that finds them with `get(id)`."""


def registry_of(workflows: Workflows, *, subject: str) -> RegistryPort[Workflow]:
    """The registry that was given, or one of the workflows that were.

    Args:
        workflows: A workflow, several of them, or a registry.
        subject: What they were given to, for errors.

    Raises:
        DefinitionError: If it is none of these, or two workflows share an id.
    """
    if isinstance(workflows, Workflow):
        return WorkflowRegistry([workflows])
    if callable(getattr(workflows, "get", None)) and not isinstance(workflows, dict):
        return cast("RegistryPort[Workflow]", workflows)
    if isinstance(workflows, Iterable) and not isinstance(workflows, dict | str):
        return WorkflowRegistry(workflows)
    problem = f"a {type(workflows).__name__} is no workflow, no list of them and no registry"
    if isinstance(workflows, WorkflowBuilder):
        problem += "; it becomes a workflow with .build()"
    raise DefinitionError(subject, (problem,))
