"""Stages and workflows that are defined wrongly, or differ between builds."""

from dataclasses import dataclass

from stagewright.errors.root import StagewrightError, listed

__all__ = [
    "DefinitionError",
    "DefinitionVersionConflictError",
    "DefinitionVersionMismatchError",
    "UnknownDefinitionVersionError",
    "UnknownStageError",
    "UnknownWorkflowError",
]


@dataclass(eq=False)
class DefinitionError(StagewrightError):
    """A stage or a workflow is defined wrongly; all of its problems are listed at once.

    Attributes:
        subject: What is being defined, such as `workflow 'orders'` or `stage function price (orders.py:12)`.
        problems: One sentence each, with the fix.
    """

    subject: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"{self.subject}: {self.problems[0]}"
        return f"{self.subject} has {len(self.problems)} problems:\n" + "\n".join(
            f"- {text}" for text in self.problems
        )


@dataclass(eq=False)
class DefinitionVersionMismatchError(StagewrightError):
    """This build presents another version of the workflow than the run is pinned to."""

    run_id: str
    workflow_id: str
    pinned_version: str
    live_version: str | None

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is pinned to version {self.pinned_version!r} of workflow {self.workflow_id!r}, and "
            f"this build serves {self.live_version!r}; run it with the build that serves the pinned version"
        )


@dataclass(eq=False)
class DefinitionVersionConflictError(StagewrightError):
    """A declared version is used again for another structure."""

    workflow_id: str
    version: str
    stored_structure_hash: str
    current_structure_hash: str

    def __str__(self) -> str:
        return (
            f"version {self.version!r} of workflow {self.workflow_id!r} is already registered with structure "
            f"{self.stored_structure_hash}, and this build has {self.current_structure_hash} under the same version; "
            "declare a new version with .version(...)"
        )


@dataclass(eq=False)
class UnknownDefinitionVersionError(StagewrightError):
    """No definition of the workflow is registered under that version."""

    workflow_id: str
    version: str

    def __str__(self) -> str:
        return (
            f"version {self.version!r} of workflow {self.workflow_id!r} was never registered; the first run that is "
            "created with a version registers it, and a redrive on 'latest' registers the one that this build has"
        )


@dataclass(eq=False)
class UnknownWorkflowError(StagewrightError):
    """No workflow of that id is registered here."""

    workflow_id: str
    known: tuple[str, ...] | None = None

    def __str__(self) -> str:
        known = "" if self.known is None else f"; this registry has {listed(self.known)}"
        return f"workflow {self.workflow_id!r} is not found in the registry{known}"


@dataclass(eq=False)
class UnknownStageError(StagewrightError):
    """The workflow has no stage of that id."""

    workflow_id: str
    stage_id: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"workflow {self.workflow_id!r} has no stage {self.stage_id!r}; it has {listed(self.known)}"
