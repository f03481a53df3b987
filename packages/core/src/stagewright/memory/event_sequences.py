"""The sequences of a run's events."""

from stagewright.memory.database import InMemoryDatabase
from stagewright.memory.transaction import Transaction

__all__ = ["last_sequence"]


def last_sequence(tx: Transaction, database: InMemoryDatabase, run_id: str) -> int:
    """The sequence of a run's last event, as a transaction sees it; 0 where there is none."""
    last = tx.get(database.event_sequences, run_id)
    return 0 if last is None else last.last
