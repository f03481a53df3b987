"""Waiting for notifications."""

from datetime import timedelta

from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.database import Database

__all__ = ["WaitsForWork"]


class WaitsForWork(Connection):
    """The waiting half of `WorkNotifier`; telling is a part of every transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._inbox = database.work.inbox()

    async def wait_for_work(self, timeout: timedelta) -> bool:
        """Wait for a notification that came since the last one this adapter was told of."""
        self._database.listen()
        return await self._inbox.wait(timeout)
