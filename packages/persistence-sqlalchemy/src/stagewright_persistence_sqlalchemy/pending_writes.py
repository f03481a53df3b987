"""The writes of a transaction that were not sent yet: one entry for each row, merged as they come."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sqlalchemy import Table

from stagewright.errors import DuplicateRecordError, StaleVersionError
from stagewright_persistence_sqlalchemy.column_types import encoded
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

__all__ = ["ENTITIES", "LAST_EVENT", "PendingWrites", "RowUpdate"]

ENTITIES: Final = {PLAIN_TABLES.runs.name: "run", PLAIN_TABLES.stages.name: "stage"}
"""What errors call the rows of tables whose rows have versions."""

LAST_EVENT: Final = "last event of run"
"""What errors call what has happened in a run since it was loaded."""

RowKey: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class RowUpdate:
    """What changes of one row.

    Attributes:
        table: Its table.
        key: The value of its `id`.
        values: New values by column.
        bumps: How much its version rises.
        expected_version: Which version it must have before, or None.
        expected_sequence: Of a run: which sequence its last event must have before, or None.
    """

    table: Table
    key: str
    values: dict[str, Any]
    bumps: int = 0
    expected_version: int | None = None
    expected_sequence: int | None = None


@dataclass(slots=True)
class PendingWrites:
    """Everything that is to be sent at the next flush; its tables are `PLAIN_TABLES`, whatever they are called.

    Attributes:
        inserts: New rows by table, in the order they came; each has all columns of its table.
        updates: Changes of rows that are in the database, by table and id.
        acknowledgements: Changes of jobs under their fences, by job id.
        enqueued: Jobs that take the place of their stage's earlier one, by run and stage: the last one of each counts.
        topics: What waiting hosts are told, once each.
    """

    inserts: dict[Table, list[dict[str, Any]]] = field(default_factory=dict)
    updates: dict[RowKey, RowUpdate] = field(default_factory=dict)
    acknowledgements: dict[str, dict[str, Any]] = field(default_factory=dict)
    enqueued: dict[RowKey, dict[str, Any]] = field(default_factory=dict)
    topics: dict[str, None] = field(default_factory=dict)
    _inserted: dict[RowKey, dict[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.inserts or self.updates or self.acknowledgements or self.enqueued or self.topics)

    def insert(self, table: Table, row: Mapping[str, Any], *, skip_existing: bool = False) -> None:
        """Add a row, or leave it out with `skip_existing` when one with its id waits already.

        Raises:
            DuplicateRecordError: If a row with its id is waiting to be inserted already.
        """
        values = encoded(table, row)
        key = values.get("id")
        if isinstance(key, str):
            if (table.name, key) in self._inserted:
                if skip_existing:
                    return
                raise DuplicateRecordError(ENTITIES.get(table.name, table.name), key)
            self._inserted[table.name, key] = values
        self.inserts.setdefault(table, []).append(values)

    def update(
        self,
        table: Table,
        key: str,
        values: Mapping[str, Any],
        *,
        bumps: int = 1,
        expected_version: int | None = None,
    ) -> None:
        """Change a row, also one that is itself waiting to be inserted.

        Raises:
            StaleVersionError: If what is waiting already tells that the version can't be the expected one.
        """
        values = encoded(table, values)
        inserted = self._inserted.get((table.name, key))
        if inserted is not None:
            if expected_version is not None and inserted["version"] != expected_version:
                raise StaleVersionError(ENTITIES[table.name], key, expected_version, inserted["version"])
            inserted.update(values)
            if bumps:
                inserted["version"] += bumps
            return
        update = self.updates.setdefault((table.name, key), RowUpdate(table, key, {}))
        if expected_version is not None:
            before = expected_version - update.bumps
            if update.expected_version not in (None, before):
                current = update.expected_version + update.bumps
                raise StaleVersionError(ENTITIES[table.name], key, expected_version, current)
            update.expected_version = before
        update.values.update(values)
        update.bumps += bumps

    def expect_run(self, run_id: str, *, version: int, last_sequence: int) -> None:
        """Send a run's update, and all that is sent with it, only if it has this version and this last event."""
        self.update(PLAIN_TABLES.runs, run_id, {}, bumps=0, expected_version=version)
        waiting = self.updates.get((PLAIN_TABLES.runs.name, run_id))
        if waiting is not None:
            waiting.expected_sequence = last_sequence

    @property
    def expected_runs(self) -> list[RowUpdate]:
        """The updates of runs that have to be as they were loaded."""
        return [update for update in self.updates.values() if update.expected_sequence is not None]

    def enqueue(self, row: Mapping[str, Any]) -> None:
        """Add a job; one of the same stage that waits to be sent would never be seen, and is dropped."""
        key = row["run_id"], row["stage_id"]
        # The place of the dropped one isn't kept: a stage's later job is behind those that were enqueued meanwhile.
        self.enqueued.pop(key, None)
        self.enqueued[key] = encoded(PLAIN_TABLES.jobs, row)

    def clear(self) -> None:
        """Forget everything: it was sent, or it was undone."""
        for collection in (
            self.inserts,
            self.updates,
            self.acknowledgements,
            self.enqueued,
            self.topics,
            self._inserted,
        ):
            collection.clear()
