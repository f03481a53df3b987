"""Where the structures of workflows are kept."""

from typing import Protocol

from stagewright.records import DefinitionRecord

__all__ = ["DefinitionStore"]


class DefinitionStore(Protocol):
    """Definitions by workflow id and version; a row never changes."""

    async def insert_definition_if_absent(self, definition: DefinitionRecord) -> DefinitionRecord:
        """Insert a definition unless its workflow and version are there already; the first writer wins.

        Returns:
            The row that is stored now.
        """
        ...

    async def get_definition(self, workflow_id: str, version: str) -> DefinitionRecord | None:
        """The stored definition, or None."""
        ...
