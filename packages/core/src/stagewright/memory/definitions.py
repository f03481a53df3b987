from stagewright.memory.connection import Connection
from stagewright.memory.copies import detached
from stagewright.records import DefinitionRecord

__all__ = ["InMemoryDefinitionStore"]


class InMemoryDefinitionStore(Connection):
    """Definitions by workflow id and version; see `DefinitionStore`."""

    async def insert_definition_if_absent(self, definition: DefinitionRecord) -> DefinitionRecord:
        """Insert a definition unless it is there already, and return the row that is stored now."""
        definitions = self._database.definitions
        key = (definition.workflow_id, definition.version)
        async with self._statement("insert_definition_if_absent") as tx:
            lock = (definitions.name, key)
            locked_here = await tx.lock(lock)
            stored = tx.get(definitions, key)
            if stored is None:
                stored = detached(definition)
                tx.put(definitions, stored)
            elif locked_here:
                tx.unlock(lock)
            return detached(stored)

    async def get_definition(self, workflow_id: str, version: str) -> DefinitionRecord | None:
        """The stored definition, or None."""
        async with self._statement("get_definition") as tx:
            stored = tx.get(self._database.definitions, (workflow_id, version))
            return None if stored is None else detached(stored)
