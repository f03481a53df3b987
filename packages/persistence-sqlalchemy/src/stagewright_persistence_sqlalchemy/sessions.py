"""How statements reach a database: the one place that knows a driver or SQLAlchemy's connection from a statement."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from sqlalchemy import Executable

from stagewright_persistence_sqlalchemy.rows import Row

__all__ = ["Session", "Sessions"]


class Session(Protocol):
    """One connection. Statements are SQLAlchemy Core; parameters go by the names of their bind parameters."""

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement and read all its rows."""
        ...

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Like `fetch`, for the last statement of a transaction, which nothing that it answers can make undone.

        Where it is the first one too, it may be the whole transaction, without a BEGIN and a COMMIT around it. One that
        refuses to be kept has changed nothing, and its answer is what it told.
        """
        ...

    async def can_finish_at_once(self) -> bool:
        """Whether the next statement, if it is the last one too, is the whole transaction by itself."""
        ...

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        """Run a statement and say how many rows it changed."""
        ...

    async def execute_all(
        self, statements: Sequence[tuple[Executable, Sequence[Mapping[str, Any]]]]
    ) -> list[list[int]]:
        """Run statements in turn, each for each of its sets of parameters, and say how many rows each time changed."""
        ...

    @property
    def can_restart(self) -> bool:
        """Whether this is in a transaction of its own, which can be rolled back and begun anew."""
        ...

    async def restart(self) -> None:
        """Roll the transaction back and begin a new one on the same connection."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Undo what the block did when it raises."""
        ...


class Sessions(Protocol):
    """Gives out connections of a pool."""

    def reading(self) -> AbstractAsyncContextManager[Session]:
        """A connection on which every statement is a transaction of its own."""
        ...

    def writing(self) -> AbstractAsyncContextManager[Session]:
        """A connection in a transaction, which commits when the block ends and rolls back when it raises."""
        ...
