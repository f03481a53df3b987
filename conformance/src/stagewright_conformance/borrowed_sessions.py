"""A persistence in a transaction that its caller has opened."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from stagewright.errors import SessionRefusedError, StaleVersionError
from stagewright.ports import BorrowsSessions, Persistence
from stagewright.records import KeyAcquired, RunPatch
from stagewright.status import Status
from stagewright_conformance.samples import MOMENT, a_run, a_signal, a_stage, an_event
from stagewright_conformance.suite import PersistenceSuite

__all__ = ["BorrowedSessionSuite", "CallersSession", "OpenSession"]


@dataclass(frozen=True, slots=True)
class CallersSession:
    """A session as a caller has opened it on the store under test.

    Attributes:
        session: What is given to `borrow`.
        commit: Ends its transaction for good; without it the transaction is rolled back.
    """

    session: object
    commit: Callable[[], Awaitable[object]]


OpenSession: TypeAlias = Callable[[], AbstractAsyncContextManager[CallersSession]]


class _BodyError(Exception):
    """What a test's block raises."""


def _borrowed(
    persistence: Persistence, session: object
) -> Any:  # Any: a persistence, as the one that was given
    assert isinstance(persistence, BorrowsSessions)
    return persistence.borrow(session)


@pytest.mark.needs("callers_sessions")
class BorrowedSessionSuite(PersistenceSuite):
    """`BorrowsSessions`: a persistence on the caller's session writes there and only there.

    Fixtures: those of `PersistenceSuite`, and `open_session` (required where sessions can be borrowed: opens one of the
    caller's own, in a transaction).
    """

    @pytest.fixture
    def open_session(self) -> OpenSession:
        """Opens a session of the caller's."""

        def missing() -> AbstractAsyncContextManager[CallersSession]:
            raise NotImplementedError(
                "override the fixture `open_session` with what opens a session of a caller's"
            )

        return missing

    @pytest.mark.guarantee("stores.borrowed-sessions-decide")
    @pytest.mark.parametrize("kept", [True, False])
    async def test_the_callers_commit_decides_on_everything(
        self, persistence: Persistence, competitor: Persistence, open_session: OpenSession, *, kept: bool
    ) -> None:
        """`borrow`: it sends everything there, and never commits it or rolls it back."""
        run, later = a_run(), a_run()
        assert isinstance(persistence, BorrowsSessions)
        async with open_session() as callers:
            borrowed = _borrowed(persistence, callers.session)
            async with borrowed.transaction() as tx:
                await tx.create_run(run)
                await tx.create_stage(a_stage(run.id))
                await tx.append_outbox_events([an_event(run.id)])
                key = await tx.acquire_idempotency_key(
                    "k", "c", fingerprint="f", now=MOMENT, stale_after=None
                )
                assert key == KeyAcquired()
            await borrowed.create_run(later)
            assert await borrowed.insert_signal_if_absent(a_signal(run.id))
            for one in (run, later):
                assert await competitor.get_run(one.id) is None
                assert await borrowed.get_run(one.id) is not None
            if kept:
                await callers.commit()
        for one in (run, later):
            assert (await competitor.get_run(one.id) is not None) is kept
        assert (await competitor.get_signal(run.id, "price", "approval") is not None) is kept
        assert len(await competitor.get_stages_by_run(run.id)) == int(kept)
        again = await competitor.acquire_idempotency_key(
            "k", "c", fingerprint="f", now=MOMENT, stale_after=None
        )
        assert (again == KeyAcquired()) is not kept

    async def test_what_a_transaction_wrote_is_sent_when_its_block_ends(
        self, persistence: Persistence, open_session: OpenSession
    ) -> None:
        """`borrow`: everything is there for whoever borrows the session next."""
        run = a_run()
        assert isinstance(persistence, BorrowsSessions)
        async with open_session() as callers:
            async with _borrowed(persistence, callers.session).transaction() as tx:
                await tx.create_run(run)
            assert await _borrowed(persistence, callers.session).get_run(run.id) == run

    @pytest.mark.guarantee("stores.borrowed-sessions-decide")
    async def test_a_block_that_raises_leaves_the_rest_of_the_callers_transaction(
        self, persistence: Persistence, competitor: Persistence, open_session: OpenSession
    ) -> None:
        """`borrow`: when its block raises, what was written since is undone, and the caller's transaction goes on."""
        first, undone, last = a_run(), a_run(), a_run()
        assert isinstance(persistence, BorrowsSessions)
        async with open_session() as callers:
            borrowed = _borrowed(persistence, callers.session)
            await borrowed.create_run(first)

            async def fail() -> None:
                async with borrowed.transaction() as tx:
                    await tx.create_run(undone)
                    assert await tx.get_run(undone.id) is not None
                    raise _BodyError

            with pytest.raises(_BodyError):
                await fail()
            await borrowed.create_run(last)
            await callers.commit()
        there = [await competitor.get_run(run.id) is not None for run in (first, undone, last)]
        assert there == [True, False, True]

    async def test_a_stale_version_is_told_when_the_block_ends(
        self, persistence: Persistence, competitor: Persistence, open_session: OpenSession
    ) -> None:
        """`borrow`: a transaction is one as any: a stale version is told at its end at the latest."""
        run, later = a_run(), MOMENT + timedelta(seconds=1)
        await persistence.create_run(run)
        assert isinstance(persistence, BorrowsSessions)
        async with open_session() as callers:
            borrowed = _borrowed(persistence, callers.session)
            patch = RunPatch(updated_at=later, status=Status.RUNNING)
            with pytest.raises(StaleVersionError):
                async with borrowed.transaction() as tx:
                    await tx.update_run(run.id, patch, expected_version=run.version + 1)
            async with borrowed.transaction() as tx:
                await tx.update_run(run.id, patch, expected_version=run.version)
            await callers.commit()
        changed = replace(run, updated_at=later, status=Status.RUNNING, version=run.version + 1)
        assert await competitor.get_run(run.id) == changed

    @pytest.mark.parametrize("session", [None, object(), "session"])
    async def test_what_is_no_session_is_refused(self, persistence: Persistence, session: object) -> None:
        """`borrow`: `SessionRefusedError` if it is nothing that this persistence can use."""
        assert isinstance(persistence, BorrowsSessions)
        with pytest.raises(SessionRefusedError):
            await _borrowed(persistence, session).get_run("x")
