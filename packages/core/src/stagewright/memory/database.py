"""The committed state that in-memory adapters share."""

import asyncio
import itertools
from collections.abc import Callable, Hashable
from typing import Final

from stagewright.memory.locks import LockTable, Mutex
from stagewright.memory.rows import (
    AICallRow,
    AnnotationRow,
    BlobRow,
    EventSequenceRow,
    IdempotencyRow,
    JobRow,
    OutboxRow,
)
from stagewright.memory.tables import Table
from stagewright.memory.work_channel import WorkChannel
from stagewright.ports.clock import Clock
from stagewright.records import (
    DefinitionRecord,
    LogRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    StoredStage,
    Tombstone,
)
from stagewright.system import SystemClock

__all__ = ["InMemoryDatabase"]


_OF_SIGNALS: Final[dict[str, Callable[[SignalRecord], Hashable]]] = {
    "run": lambda signal: signal.run_id,
    "step": lambda signal: (signal.run_id, signal.stage_id, signal.step_id),
}

_OF_AI_CALLS: Final[dict[str, Callable[[AICallRow], Hashable]]] = {
    "batch": lambda row: row.logged.batch_id,
    "request": lambda row: (row.logged.batch_id, row.logged.call.request_id),
}


class InMemoryDatabase:
    """A database in this process: adapters over the same one share transactions, locks and notifications.

    It behaves as a server database does at READ COMMITTED, for any number of tasks, event loops and threads.

    Args:
        clock: The database's own clock, by which leases are stamped; the machine's unless given.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.mutex = Mutex()
        self.locks = LockTable(self.mutex)
        self.work = WorkChannel(self.mutex)
        self._positions = itertools.count(1)
        self._make_run_tables()
        self._make_event_tables()
        self._make_work_tables()

    async def pause(self, moment: str) -> None:
        """Where other tasks get their turn; override it to decide what happens between two calls.

        Args:
            moment: The name of the adapter's method that is about to do its work, `commit` before a transaction is
                committed, or `committed` after anything was; the last gives nobody a turn unless overridden.
        """
        if moment != "committed":
            await asyncio.sleep(0)

    def next_position(self) -> int:
        """The next of numbers that rise; as a database's sequence it knows no rollback."""
        return next(self._positions)

    def _make_run_tables(self) -> None:
        self.runs = Table[RunRecord]("runs", lambda run: run.id, {"status": lambda run: run.status})
        self.stages = Table[StoredStage](
            "stages",
            lambda stage: stage.id,
            {
                "run": lambda stage: stage.run_id,
                "stage": lambda stage: (stage.run_id, stage.stage_id),
                "status": lambda stage: stage.status,
            },
        )
        self.definitions = Table[DefinitionRecord]("definitions", lambda row: (row.workflow_id, row.version))
        self.annotations = Table[AnnotationRow](
            "annotations",
            lambda row: row.record.id,
            {
                "run": lambda row: row.record.run_id,
                "unique": lambda row: (row.record.run_id, row.record.key, row.record.idempotency_key),
            },
        )
        self.logs = Table[LogRecord]("logs", lambda line: line.id, {"run": lambda line: line.run_id})

    def _make_event_tables(self) -> None:
        self.event_sequences = Table[EventSequenceRow]("event sequences", lambda row: row.run_id)
        self.outbox = Table[OutboxRow](
            "outbox",
            lambda row: row.record.id,
            {
                "run": lambda row: row.record.run_id,
                "pending": lambda row: row.is_pending,
                "dead": lambda row: row.record.dead_lettered_at is not None,
            },
        )
        self.idempotency_keys = Table[IdempotencyRow](
            "idempotency keys", lambda row: (row.key, row.command_type), {"run": lambda row: row.run_id}
        )
        self.tombstones = Table[Tombstone]("tombstones", lambda row: row.run_id)

    def _make_work_tables(self) -> None:
        self.jobs = Table[JobRow](
            "jobs",
            lambda row: (row.record.run_id, row.record.stage_id),
            {
                "id": lambda row: row.record.id,
                "run": lambda row: row.record.run_id,
                "status": lambda row: row.record.status,
                "group": lambda row: (row.record.status, row.group),
            },
        )
        self.steps = Table[StepRecord](
            "steps",
            lambda step: (step.stage_record_id, step.step_id),
            {"id": lambda step: step.id, "stage": lambda step: step.stage_record_id},
        )
        self.signals = Table[SignalRecord]("signals", lambda signal: signal.id, _OF_SIGNALS)
        self.blobs = Table[BlobRow]("blobs", lambda blob: blob.key)
        self.ai_calls = Table[AICallRow]("model calls", lambda row: row.id, _OF_AI_CALLS)
