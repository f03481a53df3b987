from collections import Counter

from stagewright.memory.connection import Connection
from stagewright.records import DefinitionRecord, RunRecord, VersionCounts
from stagewright.records.copies import detached
from stagewright.status import TERMINAL_RUN_STATUSES

__all__ = ["InMemoryDefinitionStore"]


class InMemoryDefinitionStore(Connection):
    """Definitions by workflow id and version; see `DefinitionStore`."""

    async def supports_definition_versioning(self) -> bool:
        """True."""
        return True

    async def ensure_definition_versioning_detected(self) -> bool:
        """True."""
        return True

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

    async def count_runs_by_definition_version(
        self,
        *,
        workflow_id: str | None = None,
        definition_version: str | None = None,
        only_active: bool = False,
    ) -> list[VersionCounts]:
        """How many runs there are of each workflow and version, by status."""
        async with self._statement("count_runs_by_definition_version") as tx:
            buckets: dict[tuple[str, str | None], list[RunRecord]] = {}
            for run in tx.all(self._database.runs):
                wanted = workflow_id in (None, run.workflow_id)
                wanted = wanted and definition_version in (None, run.definition_version)
                if wanted and not (only_active and run.status in TERMINAL_RUN_STATUSES):
                    buckets.setdefault((run.workflow_id, run.definition_version), []).append(run)
        return [
            VersionCounts(
                workflow_id=of_workflow,
                definition_version=version,
                counts=dict(Counter(run.status for run in runs)),
                oldest_created_at=min(run.created_at for run in runs),
            )
            for (of_workflow, version), runs in buckets.items()
        ]
