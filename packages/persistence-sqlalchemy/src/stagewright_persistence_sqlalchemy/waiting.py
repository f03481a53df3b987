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
        """Wait for a notification that came since the last wait returned, or that may have gone unheard.

        The first call of a `Database` begins to listen, and ends once that has succeeded.
        """
        self._database.listen()
        return await self._inbox.wait(timeout)

    def is_listening(self) -> bool:
        """Whether the database is listened to at this moment."""
        return self._database.listener.is_healthy
