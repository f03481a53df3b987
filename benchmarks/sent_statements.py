"""Counting what one run costs: the statements and commits that reach the database, as the driver sends them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

__all__ = ["SentStatements", "listening"]

_WRITES = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM)\b")
_FRAMES = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}


@dataclass
class SentStatements:
    """Statements in the order in which they were sent, over one connection at a time.

    Attributes:
        statements: How many, without those that begin and end transactions and savepoints.
        commits: How many: a COMMIT, or a statement outside of a transaction that writes.
    """

    statements: int = 0
    commits: int = 0
    _inside: bool = field(default=False, repr=False)

    def note(self, statement: Any) -> None:
        """Count a statement: its text, or asyncpg's record of it."""
        text = str(getattr(statement, "query", statement)).strip()
        first = text.split(maxsplit=1)[0].rstrip(";").upper() if text else ""
        if first == "BEGIN":
            self._inside = True
        elif first == "COMMIT":
            self._inside, self.commits = False, self.commits + 1
        elif first == "ROLLBACK" and not text.upper().startswith("ROLLBACK TO"):
            self._inside = False
        elif first not in _FRAMES and not text.startswith("--"):
            self.statements += 1
            self.commits += not self._inside and _WRITES.search(text) is not None

    def forget(self) -> None:
        """Begin to count anew."""
        self.statements = self.commits = 0


@contextmanager
def listening(sent: SentStatements) -> Iterator[None]:
    """Note what is sent by every connection that SQLAlchemy opens meanwhile."""

    def connect(connection: Any, record: object) -> None:  # Any: each driver's adapted connection
        driver = connection.driver_connection
        if hasattr(driver, "add_query_logger"):
            driver.add_query_logger(sent.note)
        else:
            connection.run_async(lambda opened: opened.set_trace_callback(sent.note))

    event.listen(Pool, "connect", connect)
    try:
        yield
    finally:
        event.remove(Pool, "connect", connect)
