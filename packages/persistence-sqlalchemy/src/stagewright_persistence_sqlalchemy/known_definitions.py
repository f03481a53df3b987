"""Definitions that are known to be stored: rows of their table never change, so they needn't be read again."""

from dataclasses import replace

from stagewright.records import DefinitionRecord
from stagewright_persistence_sqlalchemy.column_types import read_json, write_json

__all__ = ["KnownDefinitions"]


class KnownDefinitions:
    """Definitions by workflow and version; what goes in and comes out is the caller's own."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[DefinitionRecord, str]] = {}

    def remember(self, definition: DefinitionRecord) -> None:
        """Keep a definition."""
        key = (definition.workflow_id, definition.version)
        self._known[key] = (replace(definition, snapshot=None), write_json(definition.snapshot))

    def recall(self, workflow_id: str, version: str) -> DefinitionRecord | None:
        """The definition, or None if it isn't known."""
        known = self._known.get((workflow_id, version))
        return None if known is None else replace(known[0], snapshot=read_json(known[1]))

    def copy(self) -> "KnownDefinitions":
        """The same definitions, apart from these."""
        copied = KnownDefinitions()
        copied.include(self)
        return copied

    def include(self, others: "KnownDefinitions") -> None:
        """Keep these as well."""
        self._known |= others._known

    def clear(self) -> None:
        """Forget them all."""
        self._known.clear()
