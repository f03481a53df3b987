"""Where the structures of workflows are kept."""

from typing import Protocol

from stagewright.records import DefinitionRecord, VersionCounts

__all__ = ["DefinitionStore"]


class DefinitionStore(Protocol):
    """Definitions by workflow id and version; a row never changes."""

    async def supports_definition_versioning(self) -> bool:
        """Whether runs keep the version that they are pinned to: True, since every store has to.

        Nothing is asked of the database, so that it can be called at any moment of a transaction.
        """
        ...

    async def ensure_definition_versioning_detected(self) -> bool:
        """Make sure of what `supports_definition_versioning` answers, and answer the same."""
        ...

    async def insert_definition_if_absent(self, definition: DefinitionRecord) -> DefinitionRecord:
        """Insert a definition unless its workflow and version are there already; the first writer wins.

        Returns:
            The row that is stored now.
        """
        ...

    async def get_definition(self, workflow_id: str, version: str) -> DefinitionRecord | None:
        """The stored definition, or None."""
        ...

    async def count_runs_by_definition_version(
        self,
        *,
        workflow_id: str | None = None,
        definition_version: str | None = None,
        only_active: bool = False,
    ) -> list[VersionCounts]:
        """How many runs there are of each workflow and version, by status; in no order.

        Runs that are pinned to no version count as a version of their own, None. Where an argument is given, only runs
        of that workflow, or of that very version; with `only_active` only runs that have not ended. What has no runs
        isn't listed, nor is a status that no run has.
        """
        ...
