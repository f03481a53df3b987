"""Keeping the definition that a run is pinned to."""

from stagewright.definitions import Workflow
from stagewright.errors import DefinitionVersionConflictError
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import DefinitionRecord

__all__ = ["register_definition", "require_same_structure"]


async def register_definition(workflow: Workflow, unit: UnitOfWork) -> None:
    """Store the definition that this build has of a workflow, unless it is stored.

    Raises:
        DefinitionVersionConflictError: If its declared version was used for another structure.
    """
    # Looked for first: an insert would hold the row, and with it every other creator, until this transaction ends.
    stored = await unit.tx.get_definition(workflow.id, workflow.definition_version)
    if stored is None:
        stored = await unit.tx.insert_definition_if_absent(
            DefinitionRecord(
                workflow_id=workflow.id,
                version=workflow.definition_version,
                structure_hash=workflow.structure_hash,
                snapshot=workflow.snapshot(),
                created_at=unit.now,
            )
        )
    _check(stored, workflow)


async def require_same_structure(workflow: Workflow, unit: UnitOfWork) -> None:
    """Refuse to go on with a workflow whose version is stored with another structure; nothing is stored.

    Raises:
        DefinitionVersionConflictError: If its declared version was used for another structure.
    """
    if workflow.declared_version is None:
        return  # a derived version is the structure's own hash
    stored = await unit.tx.get_definition(workflow.id, workflow.definition_version)
    if stored is not None:
        _check(stored, workflow)


def _check(stored: DefinitionRecord, workflow: Workflow) -> None:
    if stored.structure_hash != workflow.structure_hash:
        raise DefinitionVersionConflictError(
            workflow.id, workflow.definition_version, stored.structure_hash, workflow.structure_hash
        )
