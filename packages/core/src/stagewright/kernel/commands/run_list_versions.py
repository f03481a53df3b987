"""`run.listVersions`: how many runs each version of each workflow has, and which of them nobody here can run."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from stagewright.kernel.command import Command, Id
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.rules.versions import summarise_versions
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import VersionSummary

__all__ = ["ListVersions", "ListVersionsResult", "handle"]


@dataclass(frozen=True, slots=True)
class ListVersionsResult:
    """The versions that runs are pinned to.

    Attributes:
        supported: True: every store keeps the version that a run is pinned to.
        versions: Every version that has runs, the newest first; runs that are pinned to none come last.
        unserved_here: Those of them that have active runs and that this kernel doesn't serve; without another process
            that does, these runs wait.
    """

    supported: bool
    versions: tuple[VersionSummary, ...]
    unserved_here: tuple[VersionSummary, ...]


@dataclass(frozen=True, slots=True)
class ListVersions(Command[ListVersionsResult]):
    """Count runs by workflow and version, to see when an old build can go, and what waits for a build that is missing.

    Attributes:
        workflow_id: Only versions of this workflow.
        definition_version: Only this version.
        only_active: Only runs that have not ended, which is quick however many have.
    """

    type: ClassVar[str] = "run.listVersions"

    _: KW_ONLY
    workflow_id: Id | None = None
    definition_version: Id | None = None
    only_active: Annotated[bool, Field(strict=True)] = False


async def handle(command: ListVersions, unit: UnitOfWork) -> ListVersionsResult:
    """Count, and compare with what this kernel serves as of now."""
    counted = await unit.tx.count_runs_by_definition_version(
        workflow_id=command.workflow_id,
        definition_version=command.definition_version,
        only_active=command.only_active,
    )
    for one in counted:
        workflow = unit.ports.registry.get(one.workflow_id)
        if workflow is not None and workflow.definition_version == one.definition_version:
            await unit.ports.known_definitions.fits(unit.tx, workflow)
    served = unit.ports.served_definitions()
    pairs = None if served is None else {(pair.workflow_id, pair.version) for pair in served}

    def is_served(workflow_id: str, version: str) -> bool:
        if pairs is not None:
            return (workflow_id, version) in pairs
        return _has(unit.ports, workflow_id, version)

    versions = summarise_versions(counted, is_served=is_served)
    unserved = tuple(one for one in versions if one.active and not one.served_here)
    await unit.tx.ensure_definition_versioning_detected()
    return ListVersionsResult(await unit.tx.supports_definition_versioning(), versions, unserved)


def _has(ports: KernelPorts, workflow_id: str, version: str) -> bool:
    """Whether a registry that can't list what it has finds the workflow in that version."""
    workflow = ports.registry.get(workflow_id)
    if workflow is None or workflow.definition_version != version:
        return False
    return not ports.known_definitions.differs(workflow)
