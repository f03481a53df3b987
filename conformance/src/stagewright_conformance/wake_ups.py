"""Waking those who wait for work: after the commit, and whatever the moment at which it comes."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import pytest

from stagewright.ports import Persistence, WorkNotifier
from stagewright.records import RunPatch
from stagewright_conformance.samples import LATER, a_run
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["WakeUpSuite"]

Waiting: TypeAlias = Callable[[], Awaitable["asyncio.Task[bool]"]]


class _BodyError(Exception):
    """What a test's block raises."""


class WakeUpSuite(PersistenceSuite):
    """`WorkNotifier` of a persistence: who waits is woken once the work is there.

    Fixtures: those of `PersistenceSuite`, and `listener` (the `WorkNotifier` of another process on the same
    database, which has not waited yet; `competitor` by default).
    """

    @pytest.fixture
    def listener(self, competitor: Persistence) -> WorkNotifier:
        """Who waits for work."""
        assert isinstance(competitor, WorkNotifier)
        return competitor

    @pytest.fixture
    def settle(
        self, persistence: Persistence, listener: WorkNotifier, background: Background, scale: Scale
    ) -> Callable[[], Awaitable[None]]:
        """Makes the listener listen, and tells it of all that has been."""

        async def run() -> None:
            task = background.start(_waits(listener, scale))
            await scale.still_waits(task)
            await _notify(persistence)
            assert await task
            while await listener.wait_for_work(timedelta(seconds=scale.moment)):
                pass

        return run

    @pytest.fixture
    def waiting(
        self, settle: Callable[[], Awaitable[None]], listener: WorkNotifier, background: Background
    ) -> Waiting:
        """Starts a wait for what comes from now on."""

        async def start() -> "asyncio.Task[bool]":
            await settle()
            return background.start(listener.wait_for_work(timedelta(seconds=60)))

        return start

    @pytest.mark.needs("wake_ups")
    async def test_a_waiter_is_woken(self, persistence: Persistence, waiting: Waiting, scale: Scale) -> None:
        """`notify`, `wait_for_work`: True when there was a notification."""
        task = await waiting()
        assert await scale.still_waits(task)
        await _notify(persistence)
        assert await scale.soon(task) is True

    @pytest.mark.needs("wake_ups")
    @pytest.mark.guarantee("stores.wake-ups-after-commit")
    async def test_a_waiter_is_woken_once_the_transaction_has_committed(
        self, persistence: Persistence, waiting: Waiting, scale: Scale
    ) -> None:
        """`notify`: inside a transaction, once it has committed."""
        task = await waiting()
        run = a_run()
        async with persistence.transaction() as tx:
            await tx.create_run(run)
            await _notify(tx)
            assert await scale.still_waits(task)
        assert await scale.soon(task) is True
        assert await persistence.get_run(run.id) is not None

    @pytest.mark.needs("wake_ups")
    async def test_a_transaction_that_rolls_back_wakes_nobody(
        self, persistence: Persistence, waiting: Waiting, scale: Scale
    ) -> None:
        """`notify`: inside a transaction, once it has committed; what is rolled back never happened."""
        task = await waiting()

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await _notify(tx)
                raise _BodyError

        with pytest.raises(_BodyError):
            await fail()
        assert await scale.still_waits(task)

    @pytest.mark.needs("wake_ups")
    @pytest.mark.guarantee("stores.wake-ups-never-slept-through")
    async def test_what_came_between_the_first_look_and_the_first_wait_is_not_slept_through(
        self, persistence: Persistence, listener: WorkNotifier, scale: Scale
    ) -> None:
        """`wait_for_work`: an adapter that can't have heard everything answers True once, as soon as it hears."""
        await _notify(persistence)
        assert await _waits(listener, scale) is True

    @pytest.mark.needs("wake_ups")
    async def test_a_notification_between_two_waits_is_not_lost(
        self,
        persistence: Persistence,
        listener: WorkNotifier,
        settle: Callable[[], Awaitable[None]],
        scale: Scale,
    ) -> None:
        """`wait_for_work`: what is committed after the last call returned ends the next call at once."""
        await settle()
        await _notify(persistence)
        assert await _waits(listener, scale) is True

    @pytest.mark.needs("wake_ups")
    async def test_a_wait_that_is_cancelled_takes_nothing_from_the_next(
        self, persistence: Persistence, listener: WorkNotifier, waiting: Waiting, scale: Scale
    ) -> None:
        """`wait_for_work`: a call that is cancelled takes nothing from the next."""
        task = await waiting()
        assert await scale.still_waits(task)
        notified = asyncio.create_task(_notify(persistence))
        task.cancel()
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        await notified
        assert answer is True or await _waits(listener, scale) is True

    @pytest.mark.needs("wake_ups")
    async def test_no_notification_of_many_is_slept_through(
        self, persistence: Persistence, listener: WorkNotifier, background: Background, scale: Scale
    ) -> None:
        """`wait_for_work`: who looks, waits and looks again sees the last of many changes without a wait in vain."""
        run = a_run()
        await persistence.create_run(run)
        last = scale.rows // 4

        async def change() -> None:
            for number in range(1, last + 1):
                async with persistence.transaction() as tx:
                    await tx.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=number))
                    await _notify(tx)
                await asyncio.sleep(0)

        changing = background.start(change())
        while (found := await persistence.get_run(run.id)) is not None and found.total_tokens < last:
            assert await _waits(listener, scale), f"slept through what came after change {found.total_tokens}"
        await changing

    @pytest.mark.needs("wake_ups")
    async def test_who_waited_knows_that_notifications_come(
        self, persistence: Persistence, waiting: Waiting, listener: WorkNotifier, scale: Scale
    ) -> None:
        """`is_listening`: whether notifications get through."""
        task = await waiting()
        await _notify(persistence)
        assert await scale.soon(task) is True
        assert listener.is_listening()

    @pytest.mark.needs("wake_ups")
    async def test_waiting_ends_when_the_time_is_over(
        self, listener: WorkNotifier, settle: Callable[[], Awaitable[None]], scale: Scale
    ) -> None:
        """`wait_for_work`: False when the time was over."""
        await settle()
        assert await scale.soon(listener.wait_for_work(timedelta(milliseconds=2))) is False


async def _notify(persistence: Persistence) -> None:
    assert isinstance(persistence, WorkNotifier)
    await persistence.notify("jobs")


async def _waits(listener: WorkNotifier, scale: Scale) -> bool:
    return await scale.soon(listener.wait_for_work(timedelta(seconds=scale.patience / 2)))
