"""One transaction: its connection, what is still to be sent, and what it knows of the rows that it holds."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Executable

from stagewright.errors import DeadlockError, RecordNotFoundError
from stagewright.records import LoadedRun
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.flushing import flush
from stagewright_persistence_sqlalchemy.id_lists import id_list
from stagewright_persistence_sqlalchemy.known_definitions import KnownDefinitions
from stagewright_persistence_sqlalchemy.pending_writes import PendingWrites
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.statements.reads import lock_event_sequences
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES, Tables
from stagewright_persistence_sqlalchemy.taking import Taking
from stagewright_persistence_sqlalchemy.telling import Telling

__all__ = ["Transaction"]


class Transaction:
    """A transaction, used by one task at a time as its connection is.

    Args:
        kind: The database.
        session: Its connection.
        is_borrowed: Whether somebody else commits it, nobody knows when.
        telling: Decides whether others are told with this transaction; by default they are.

    Attributes:
        pending: Writes that were not sent yet.
        has_notified: Whether waiting hosts are told of this transaction when it has committed.
        tells_later: Whether others have to be told once it has committed.
        new_definitions: Definitions that it inserted; known to be stored once it has committed.
        just_claimed: Runs that were claimed by the last statement and have no stages: nobody else can change them now.
    """

    def __init__(
        self,
        tables: Tables,
        kind: DatabaseKind,
        session: Session,
        *,
        is_borrowed: bool = False,
        telling: Telling | None = None,
    ) -> None:
        self.pending = PendingWrites()
        self._tables = tables
        self._kind = kind
        self._session = session
        self._is_borrowed = is_borrowed
        self._sequences: dict[str, int] = {}
        self._spoiled: BaseException | None = None
        self._has_sent = False
        self._telling = telling
        self.has_notified = False
        self.tells_later = False
        self.new_definitions = KnownDefinitions()
        self.just_claimed: dict[str, LoadedRun] = {}

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Send what is pending, then read."""
        await self.flush()
        self._has_sent = True
        self.just_claimed.clear()
        with self._spoiling():
            return await self._session.fetch(statement, parameters)

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Like `fetch`, for a write that only the commit follows, or where it has changed nothing, another try.

        It may be the whole transaction, so that nothing else of this one may be to be undone with it.
        """
        await self.flush()
        self._has_sent = True
        self.just_claimed.clear()
        with self._spoiling():
            return await self._session.finish_with(statement, parameters)

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        """Send what is pending, then write at once; answers how many rows changed."""
        await self.flush()
        self._has_sent = True
        self.just_claimed.clear()
        with self._spoiling():
            return await self._session.execute(statement, parameters)

    async def take(self, taking: Taking, parameters: Mapping[str, Any]) -> list[Row]:
        """Send what is pending, then change rows at once; answers what is told of them."""
        if self._kind.returns_changes:
            return await self.fetch(taking.at_once, parameters)
        if self._is_borrowed and taking.candidates is not None:
            candidates = await self.fetch(taking.candidates, parameters)
            again = dict(parameters) | taking.keys(candidates)
            chosen = await self.fetch(taking.chosen_candidates, again) if candidates else []
        else:
            chosen = await self.fetch(taking.chosen, parameters)
        if not chosen:
            return []
        keys = taking.keys(chosen)
        await self.execute(taking.change, taking.changing(parameters, keys))
        return chosen if taking.told is None else await self.fetch(taking.told, keys)

    async def flush(self, *, is_last: bool = False) -> None:
        """Send what is pending; `is_last` where only the commit follows."""
        self.check_usable()
        notifies = bool(self.pending.topics)
        if notifies and is_last and self._telling is not None and not self._telling.goes_along():
            self.pending.topics.clear()
            self.has_notified = self.tells_later = True
        if self.pending:
            self._has_sent = True
            self.just_claimed.clear()
            with self._spoiling():
                await flush(
                    self._tables,
                    self._kind,
                    self._session,
                    self.pending,
                    is_last=is_last,
                    is_borrowed=self._is_borrowed,
                )
            self.has_notified = self.has_notified or notifies

    def check_usable(self) -> None:
        """Raise the error that an earlier call of this transaction ended with: nothing of it can be kept any more."""
        if self._spoiled is not None:
            raise self._spoiled

    def know_sequence(self, run_id: str, event_seq: int) -> None:
        """Remember the last event of a run whose row this transaction holds."""
        self._sequences[run_id] = event_seq

    async def next_sequences(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Take the next so many sequences of runs, and write the runs' new last ones.

        Returns:
            The last sequence before, by run.

        Raises:
            RecordNotFoundError: If one of the runs doesn't exist.
        """
        unknown = sorted(run_id for run_id in counts if run_id not in self._sequences)
        if unknown:
            ids = id_list(unknown)
            for row in await self.fetch(lock_event_sequences(self._tables, len(ids)), ids):
                self._sequences[row["id"]] = row["event_seq"]
        before = {}
        for run_id, count in counts.items():
            last = self._sequences.get(run_id)
            if last is None:
                raise RecordNotFoundError("run", run_id)
            before[run_id] = last
            self._sequences[run_id] = last + count
            self.pending.update(PLAIN_TABLES.runs, run_id, {"event_seq": last + count}, bumps=0)
        return before

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Undo what the block wrote when it raises, and go on."""
        if self._session.can_restart and not self._has_sent and not self.pending:
            async with self._from_the_beginning():
                yield
            return
        await self.flush()
        # Those of before, where it is too early to send them.
        topics = dict(self.pending.topics)
        sequences, spoiled = dict(self._sequences), self._spoiled
        definitions = self.new_definitions.copy()
        try:
            async with self._session.savepoint():
                yield
                await self.flush()
        except BaseException:
            self.pending.clear()
            self.just_claimed.clear()
            self.pending.topics.update(topics)
            is_undone = isinstance(self._spoiled, DeadlockError) and not self._kind.keeps_savepoints
            if not is_undone:
                # A deadlock has undone the savepoint with all that was before it.
                self._spoiled = spoiled
            self._sequences = sequences
            self.new_definitions = definitions
            raise

    @asynccontextmanager
    async def _from_the_beginning(self) -> AsyncIterator[None]:
        """A savepoint before which nothing was written: undoing it is beginning anew, and it costs nothing."""
        self.check_usable()
        try:
            yield
            self.check_usable()
        except BaseException:
            self.pending.clear()
            self._sequences.clear()
            self.just_claimed.clear()
            self._spoiled = None
            self.has_notified = False
            self.new_definitions.clear()
            if self._has_sent:
                await self._session.restart()
                self._has_sent = False
            raise

    def _spoiling(self) -> "_Spoiling":
        return _Spoiling(self)

    def spoil(self, error: BaseException) -> None:
        """Remember that an error has made it impossible to keep anything of this transaction."""
        self._spoiled = self._spoiled or error


class _Spoiling:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._transaction.spoil(error)
