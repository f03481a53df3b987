"""Persistences with one clause about waking those who wait broken; collected by an inner run alone."""

import asyncio
from datetime import timedelta

from stagewright.memory import InMemoryPersistence
from stagewright.memory.work_channel import WorkInbox
from stagewright_conformance import WakeUpSuite
from stagewright_test_support.doubles import PersistenceDoubles


class NotifiesBeforeTheCommit(InMemoryPersistence):
    """A notification inside a transaction is sent at once."""

    async def notify(self, topic: str) -> None:
        await InMemoryPersistence(self.database).notify(topic)


class TestNotifiesBeforeTheCommit(PersistenceDoubles, WakeUpSuite):
    double = NotifiesBeforeTheCommit


class ListensFromItsFirstWaitOn(InMemoryPersistence):
    """What came before the first wait is slept through."""

    has_waited = False

    async def wait_for_work(self, timeout: timedelta) -> bool:
        if not self.has_waited:
            self._inbox = WorkInbox(self.database.work)
        self.has_waited = True
        return await super().wait_for_work(timeout)


class TestListensFromItsFirstWaitOn(PersistenceDoubles, WakeUpSuite):
    double = ListensFromItsFirstWaitOn


class ListensWhileItWaits(InMemoryPersistence):
    """What comes between two waits is slept through."""

    has_waited = False

    async def wait_for_work(self, timeout: timedelta) -> bool:
        if self.has_waited:
            self._inbox = WorkInbox(self.database.work)
        self.has_waited = True
        return await super().wait_for_work(timeout)


class TestListensWhileItWaits(PersistenceDoubles, WakeUpSuite):
    double = ListensWhileItWaits


class ListensTooLate(InMemoryPersistence):
    """What comes in the first moment of a wait is slept through."""

    async def wait_for_work(self, timeout: timedelta) -> bool:
        if await super().wait_for_work(timedelta(0)):
            return True
        await asyncio.sleep(0.002)
        self._inbox = WorkInbox(self.database.work)
        return await super().wait_for_work(timeout)


class TestListensTooLate(PersistenceDoubles, WakeUpSuite):
    double = ListensTooLate


class CancelledWaitsTake(InMemoryPersistence):
    """A cancelled wait takes with it what comes meanwhile."""

    async def wait_for_work(self, timeout: timedelta) -> bool:
        try:
            return await super().wait_for_work(timeout)
        except asyncio.CancelledError:
            await asyncio.sleep(0.002)
            self._inbox = WorkInbox(self.database.work)
            raise


class TestCancelledWaitsTake(PersistenceDoubles, WakeUpSuite):
    double = CancelledWaitsTake
