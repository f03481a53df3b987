"""Persistences with one clause about sessions of the caller's broken; collected by an inner run alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import pytest

from stagewright.errors import SessionRefusedError
from stagewright.memory import InMemoryPersistence
from stagewright.ports import CallersThread, Persistence
from stagewright_conformance import BorrowedSessionSuite, CallersSession, OpenSession
from stagewright_test_support.doubles import PersistenceDoubles


class _UndoneError(Exception):
    """Ends the caller's transaction without a commit."""


class Lending(InMemoryPersistence):
    """Takes an open transaction of the store in memory for the caller's session."""

    def borrow(self, session: object, thread: CallersThread | None = None) -> Self:
        if not isinstance(session, InMemoryPersistence):
            raise SessionRefusedError(type(session).__name__, "it is no transaction in memory")
        bound = self.enlist(session)
        assert bound is not None
        return bound


class LendingDoubles(PersistenceDoubles):
    @pytest.fixture
    def open_session(self, persistence: Persistence) -> OpenSession:
        @asynccontextmanager
        async def opened() -> AsyncIterator[CallersSession]:
            is_kept = False

            async def commit() -> None:
                nonlocal is_kept
                is_kept = True

            try:
                async with persistence.transaction() as tx:
                    yield CallersSession(tx, commit)
                    if not is_kept:
                        raise _UndoneError
            except _UndoneError:
                pass

        return opened


class CommitsOnItsOwn(Lending):
    """What is written goes to the store itself."""

    def borrow(self, session: object, thread: CallersThread | None = None) -> Self:
        super().borrow(session)
        return self


class TestCommitsOnItsOwn(LendingDoubles, BorrowedSessionSuite):
    double = CommitsOnItsOwn


class KeepsWhatABlockWrote(Lending):
    """A block that raises keeps what it wrote."""

    def borrow(self, session: object, thread: CallersThread | None = None) -> Self:
        borrowed = super().borrow(session)

        @asynccontextmanager
        async def unprotected() -> AsyncIterator[Self]:
            yield borrowed

        borrowed.transaction = unprotected  # type: ignore[method-assign]  # it is what is broken
        return borrowed


class TestKeepsWhatABlockWrote(LendingDoubles, BorrowedSessionSuite):
    double = KeepsWhatABlockWrote


class TakesAnything(Lending):
    """Works on its own where it is given no session."""

    def borrow(self, session: object, thread: CallersThread | None = None) -> Self:
        return super().borrow(session) if isinstance(session, InMemoryPersistence) else self


class TestTakesAnything(LendingDoubles, BorrowedSessionSuite):
    double = TakesAnything
