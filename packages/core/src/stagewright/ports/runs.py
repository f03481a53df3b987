"""Where runs are kept."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from stagewright.records import LoadedRun, RunPatch, RunRecord, Serves
from stagewright.status import Status

__all__ = ["RunClaims", "RunStore"]


class RunStore(Protocol):
    """Runs, one row each."""

    async def create_run(self, run: RunRecord) -> None:
        """Insert a run.

        Raises:
            DuplicateRecordError: If a run with its id exists, at the latest at commit.
        """
        ...

    async def update_run(self, run_id: str, patch: RunPatch, *, expected_version: int | None = None) -> None:
        """Change the fields that the patch sets, and raise the row's version by one.

        Raises:
            StaleVersionError: If `expected_version` is given and isn't the row's, at the latest at commit.
            RecordNotFoundError: If there is no such run, at the latest at commit.
        """
        ...

    async def get_run(self, run_id: str) -> RunRecord | None:
        """The run as this transaction sees it, or None."""
        ...

    async def get_run_status(self, run_id: str) -> Status | None:
        """The run's status, or None if there is no such run."""
        ...

    async def lock_runs(self, run_ids: Collection[str]) -> list[RunRecord]:
        """Lock runs until the transaction ends, and read them as they are once locked.

        A caller waits while another transaction holds one of them. Rows are locked in the order of their ids,
        whatever order is given, so two callers can't wait for each other. Outside a transaction nothing is locked.

        Returns:
            Those that exist, in the order of their ids.

        Raises:
            DeadlockError: If waiting would never end because of locks taken in another order.
        """
        ...

    async def load_runs(self, run_ids: Collection[str], *, lock: bool = False) -> list[LoadedRun]:
        """Read runs with all of their stages, as of one moment.

        With `lock` the runs are locked like by `lock_runs`, and runs and stages are read as they are once locked.

        Returns:
            Those that exist, in the order of their ids.

        Raises:
            DeadlockError: If waiting would never end because of locks taken in another order.
        """
        ...

    async def expect_run(self, loaded: LoadedRun) -> None:
        """Let this transaction be kept only if a run is as it was loaded, without waiting for who holds it until then.

        It is as it was loaded as long as it has the loaded version and no event after `last_sequence`. Events that this
        transaction appends follow that one. A store may also lock the run and compare at once.

        Raises:
            StaleVersionError: If the run isn't as it was loaded any more, or gone, at the latest at commit.
        """
        ...

    async def get_stuck_runs(
        self, before: datetime, *, limit: int, after: str | None = None, serves: Serves = None
    ) -> list[RunRecord]:
        """Up to `limit` RUNNING runs in which nothing has changed since `before`, and which wait for no time.

        Neither the run's `updated_at` nor that of one of its stages is later than `before`, and none of its stages is
        SUSPENDED with a `next_poll_at`. They come in the order of their ids; with `after`, only greater ids. Nothing is
        locked.
        """
        ...


class RunClaims(Protocol):
    """Taking PENDING runs, each by one claimer."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        """Make up to `limit` PENDING runs RUNNING, and lock them until the transaction ends.

        Higher priority goes first, then the earlier `created_at`, then the smaller id. `started_at` becomes `now`
        unless it was set, `updated_at` becomes `now`, the version rises by one. Rows that another transaction
        holds are skipped, never waited for: no two claimers get the same run.

        Returns:
            The claimed runs as they are now, in claiming order.
        """
        ...

    async def claim_next_pending_run(self, *, now: datetime, serves: Serves = None) -> RunRecord | None:
        """Make one PENDING run RUNNING: what `claim_pending_runs` does with a limit of one.

        Returns:
            The claimed run as it is now; None if there is none that could be claimed.
        """
        ...
