"""Blobs of runs that are gone: finding them, and removing them slowly and safely."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from stagewright.duration import Duration, parse_duration, subtract_within_calendar
from stagewright.errors import (
    CapabilityMissingError,
    InvalidSettingError,
    NoKnownRunError,
    OwnTransactionsError,
)
from stagewright.kernel import Kernel
from stagewright.ports import BlobStore, DatesBlobs, Persistence
from stagewright.runtime.keys import ALL_RUNS_PREFIX, run_of_key

__all__ = ["OrphanBlob", "OrphanReport", "sweep_orphans"]

_LEAST_AGE: Final = timedelta(minutes=10)
"""Clocks of stores differ by less, and transactions are shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanBlob:
    """A blob whose run is gone.

    Attributes:
        key: Its key.
        workflow_id: The workflow of the run.
        run_id: The run, of which the database has no row.
        written_at: When it was stored, in UTC.
    """

    key: str
    workflow_id: str
    run_id: str
    written_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanReport:
    """What a sweep has found and done.

    Attributes:
        orphans: The blobs whose runs are gone, in the order of their keys; those too that were deleted.
        deleted: How many of them were deleted.
        looked_at: How many blobs of runs were looked at.
        too_new: How many have no run, and are too new to be sure of it.
        not_ours: How many keys are among those of runs and are none that Stagewright writes.
        has_more: Whether there may be more, for the limit was reached.
    """

    orphans: tuple[OrphanBlob, ...] = ()
    deleted: int = 0
    looked_at: int = 0
    too_new: int = 0
    not_ours: int = 0
    has_more: bool = False


async def sweep_orphans(
    kernel: Kernel,
    *,
    delete: bool = False,
    min_age: Duration = "1d",
    limit: int = 10_000,
    batch: int = 500,
    pause: Duration = "200ms",
    all_unknown: bool = False,
) -> OrphanReport:
    """List the blobs whose runs are gone, and remove them if that is asked for.

    A purge removes a run's blobs itself. What is left over comes from processes that were lost between storing a blob
    and the transaction that was to refer to it, and from bodies that went on storing after their run was purged.

    It goes through the blobs of all runs in batches and pauses between them; orphans are looked at once more right
    before they are deleted. One that is interrupted has deleted orphans alone. Several at once do no harm.

    Args:
        kernel: A kernel over the database and the blob store that belong together. No other database may keep its
            blobs in the same place.
        delete: Whether to remove what is found.
        min_age: Blobs younger than this are left alone: the transaction that makes their run may be yet to commit. At
            least ten minutes, and longer than any transaction in which runs are made.
        limit: At most so many orphans at once.
        batch: How many blobs to look at between two pauses.
        pause: How long to pause.
        all_unknown: Delete even if the database knows the run of no blob at all.

    Raises:
        NoKnownRunError: If there are orphans to delete, and not one blob's run is known: most likely the database and
            the blob store don't belong together. Nothing was deleted.
        CapabilityMissingError: If the blob store can't say how old blobs are.
        InvalidSettingError, InvalidDurationError: If an argument is none of what it may be.
        OwnTransactionsError: If the kernel works in its caller's transaction, which may not see all runs.
    """
    if kernel.ports.is_borrowed:
        raise OwnTransactionsError("sweep_orphans")
    blobs = kernel.ports.blob_store
    if not isinstance(blobs, DatesBlobs):
        fix = "use one that says when its blobs were written, for how old a blob is tells what may be deleted"
        raise CapabilityMissingError(type(blobs).__name__, "DatesBlobs", fix)
    age = _checked_age(min_age)
    for name, count in (("limit", limit), ("batch", batch)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidSettingError(name, count, "must be a whole number of at least 1")
    seconds = parse_duration(pause, field="pause").total_seconds()
    before = subtract_within_calendar(kernel.ports.clock.now(), age)
    sweep = _Sweep(kernel.ports.persistence, blobs, kernel.ports.blob_store, before, all_unknown)
    async with aclosing(_batches(sweep.blobs, batch)) as batches:
        async for keys in batches:
            if sweep.looked_at + sweep.not_ours:
                await asyncio.sleep(seconds)
            found = await sweep.orphans_among(keys, limit - len(sweep.orphans))
            sweep.orphans += found
            if delete and found:
                await sweep.delete(found)
            if len(sweep.orphans) >= limit:
                return sweep.report(has_more=True)
    return sweep.report(has_more=False)


def _checked_age(min_age: Duration) -> timedelta:
    age = parse_duration(min_age, field="min_age")
    if age < _LEAST_AGE:
        problem = "is too short to be sure that no transaction is yet to commit; give at least 10 minutes"
        raise InvalidSettingError("min_age", min_age, problem)
    return age


async def _batches(blobs: BlobStore, size: int) -> AsyncGenerator[list[str], None]:
    keys: list[str] = []
    async for key in blobs.list(ALL_RUNS_PREFIX):
        keys.append(key)
        if len(keys) == size:
            yield keys
            keys = []
    if keys:
        yield keys


@dataclass(slots=True)
class _Sweep:
    """One way through the blobs of all runs.

    Attributes:
        runs: Where runs are kept.
        dates: Says when blobs were written.
        blobs: The same store.
        before: What was written later is left alone.
        may_delete: Whether the database is known to be that of the blobs.
    """

    runs: Persistence
    dates: DatesBlobs
    blobs: BlobStore
    before: datetime
    may_delete: bool
    orphans: list[OrphanBlob] = field(default_factory=list)
    deleted: int = 0
    looked_at: int = 0
    too_new: int = 0
    not_ours: int = 0

    async def orphans_among(self, keys: list[str], limit: int) -> list[OrphanBlob]:
        """Those of these blobs whose runs are gone, up to a limit."""
        owners = {key: run_of_key(key) for key in keys}
        gone = await self._gone({owner[1] for owner in owners.values() if owner is not None})
        found: list[OrphanBlob] = []
        for key, owner in owners.items():
            if owner is None:
                self.not_ours += 1
                continue
            self.looked_at += 1
            workflow_id, run_id = owner
            if run_id not in gone:
                continue
            written_at = await self.dates.written_at(key)
            if written_at is None:
                continue
            if written_at > self.before:
                self.too_new += 1
                continue
            found.append(OrphanBlob(key=key, workflow_id=workflow_id, run_id=run_id, written_at=written_at))
            if len(found) == limit:
                break
        return found

    async def delete(self, found: list[OrphanBlob]) -> None:
        """Remove those that are orphans still.

        Raises:
            NoKnownRunError: If the database knows the run of no blob.
        """
        if not self.may_delete:
            await self._require_a_known_run()
            self.may_delete = True
        # A run that is restored, or a blob that is written again, is seen here at the latest.
        gone = await self._gone({blob.run_id for blob in found})
        doomed = [
            blob.key
            for blob in found
            if blob.run_id in gone and await self.dates.written_at(blob.key) == blob.written_at
        ]
        await self.blobs.delete_many(doomed)
        self.deleted += len(doomed)

    def report(self, *, has_more: bool) -> OrphanReport:
        """What has been found and done."""
        return OrphanReport(
            orphans=tuple(self.orphans),
            deleted=self.deleted,
            looked_at=self.looked_at,
            too_new=self.too_new,
            not_ours=self.not_ours,
            has_more=has_more,
        )

    async def _gone(self, run_ids: Iterable[str]) -> set[str]:
        return {run_id for run_id in sorted(run_ids) if await self.runs.get_run_status(run_id) is None}

    async def _require_a_known_run(self) -> None:
        last, count = "", 0
        async for key in self.blobs.list(ALL_RUNS_PREFIX):
            owner = run_of_key(key)
            if owner is None or owner[1] == last:
                continue
            last, count = owner[1], count + 1
            if await self.runs.get_run_status(last) is not None:
                return
        raise NoKnownRunError(count)
