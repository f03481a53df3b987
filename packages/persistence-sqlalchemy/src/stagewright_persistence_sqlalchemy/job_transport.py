"""Jobs in the same database as the runs they belong to."""

import copy
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from stagewright.cursors import cursor_after_place, place_after
from stagewright.duration import add_duration, subtract_within_calendar
from stagewright.errors import OwnTransactionsError, RecordNotFoundError
from stagewright.records import (
    Acknowledgement,
    DequeuedJob,
    Fairness,
    Fence,
    JobQuery,
    JobRecord,
    LeaseSweep,
    NewJob,
    Page,
    Serves,
    group_of,
)
from stagewright.status import Status
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.fair_dequeue import FairDequeue
from stagewright_persistence_sqlalchemy.heartbeats import SqlHeartbeats, heartbeats_of
from stagewright_persistence_sqlalchemy.rows import Row, job_of
from stagewright_persistence_sqlalchemy.statements import jobs as statements
from stagewright_persistence_sqlalchemy.statements.claims import dequeue_jobs, serves_parameters
from stagewright_persistence_sqlalchemy.statements.job_listing import listed_jobs
from stagewright_persistence_sqlalchemy.transaction import Transaction
from stagewright_persistence_sqlalchemy.waiting import WaitsForWork

__all__ = ["SqlAlchemyJobTransport"]

_HEARTBEAT_LOST = "LEASE_HEARTBEAT_LOST"


class SqlAlchemyJobTransport(WaitsForWork, Connection):
    """A `JobTransport` in an SQL database, which takes part in transactions of a persistence over the same one.

    Leases are stamped and compared on the database's clock where it has one, else on the clock of the `Database`.

    Args:
        database: The database.
        fairness: A cap on the RUNNING jobs of one group; none unless given.

    Attributes:
        groups_since: The version of the schema from which on jobs have groups.

    Raises:
        SchemaFeatureOffError: If fairness is given, and the database hadn't that version yet when it was opened.
    """

    groups_since: ClassVar[str] = "0011"

    def __init__(self, database: Database, *, fairness: Fairness | None = None) -> None:
        super().__init__(database)
        if fairness is not None:
            database.schema.require(self.groups_since)
        self._fairness = fairness
        self._has_groups = database.schema.has(self.groups_since)

    @property
    def fairness(self) -> Fairness | None:
        """What it was given; None where groups don't matter."""
        return self._fairness

    def with_fairness(self, fairness: Fairness | None) -> Self:
        """Another handle on the same jobs, with that fairness or with none.

        Raises:
            SchemaFeatureOffError: If the database had no groups yet when it was opened.
        """
        if fairness is not None:
            self._database.schema.require(self.groups_since)
        other = copy.copy(self)
        other._fairness = fairness
        return other

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        """Make jobs claimable, each in the place of the one that its run and stage had."""
        now = self._database.clock.now()
        async with self._writing() as tx:
            for job in jobs:
                tx.pending.enqueue(self._new_row(job, now))
            if jobs:
                self._wake_groups(tx)
        return [job.id for job in jobs]

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        """Make jobs which this worker has already, each in the place of the one that its run and stage had.

        The fence is on the database's clock as it was found when the database was opened; the lease is stamped by the
        database itself.
        """
        now = self._database.clock.now()
        rows = [_delivered_row(self._new_row(job, now), worker_id, now) for job in jobs]
        async with self._writing() as tx:
            for row in rows:
                tx.pending.enqueue(row)
        return [_dequeued(row) for row in rows]

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        """Wake SUSPENDED jobs, enqueue missing and ended ones, and leave alone what is claimable or claimed."""
        if not jobs:
            return []
        wanted = {(job.run_id, job.stage_id): job for job in jobs}
        names = _stage_names(wanted)
        async with self._writing() as tx:
            there = await tx.fetch(statements.jobs_of_stages(self._tables, len(wanted)), names)
            for key in wanted.keys() - {(row["run_id"], row["stage_id"]) for row in there}:
                row = self._new_row(wanted[key], self._database.clock.now())
                statement = statements.enqueue_at_once(self._tables, self._database.kind, tuple(row))
                await tx.execute(statement, row)
            if any(row["status"] not in (Status.PENDING, Status.RUNNING) for row in there):
                await self._rouse(tx, wanted)
            rows = await tx.fetch(statements.jobs_of_stages(self._tables, len(wanted)), names)
        standing = {(row["run_id"], row["stage_id"]): job_of(row) for row in rows}
        return [standing[job.run_id, job.stage_id] for job in jobs]

    async def _rouse(self, tx: Transaction, wanted: Mapping[tuple[str, str], NewJob]) -> None:
        """Make jobs claimable that are there and that nobody holds."""
        now = self._database.clock.now()
        resting = await tx.fetch(
            statements.lock_jobs_at_rest(self._tables, len(wanted)), _stage_names(wanted)
        )
        asleep = [row["position"] for row in resting if row["status"] == Status.SUSPENDED]
        if asleep:
            positions = {f"position_{number}": position for number, position in enumerate(asleep)}
            await tx.execute(
                statements.wake_jobs(self._tables, self._database.kind, len(asleep)), positions | {"now": now}
            )
        for row in resting:
            if row["status"] != Status.SUSPENDED:
                tx.pending.enqueue(self._new_row(wanted[row["run_id"], row["stage_id"]], now))

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        """Take up to `limit` jobs that are due and served, passing over those that another transaction holds.

        Raises:
            OwnTransactionsError: With fairness, in a transaction of the caller's, whose isolation may be another.
        """
        if self._fairness is not None and self._borrowed is not None:
            raise OwnTransactionsError("job.claim")
        pairs = None if serves is None else [(pair.workflow_id, pair.version) for pair in serves]
        if limit < 1 or pairs == []:
            return []
        count = None if pairs is None else len(pairs)
        parameters: dict[str, Any] = {
            "by_worker": worker_id,
            "limit": limit,
            "now": self._database.clock.now(),
        }
        parameters |= serves_parameters(pairs or [])
        async with self._writing() as tx:
            if self._fairness is None:
                rows = await tx.take(dequeue_jobs(self._tables, self._database.kind, count), parameters)
            else:
                parameters["cap"] = self._fairness.max_concurrent_per_group
                rows = await FairDequeue(self._tables, self._database.kind, tx, count, parameters).rows()
                if rows:
                    self._wake_groups(tx)
        rows.sort(key=lambda row: (-row["priority"], row["position"]))
        return [_dequeued(row) for row in rows]

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        """The job becomes COMPLETED."""
        return await self._acknowledge(job_id, fence, status=Status.COMPLETED)

    async def suspend(
        self, job_id: str, next_poll_at: datetime, fence: Fence | None = None
    ) -> Acknowledgement:
        """The job becomes SUSPENDED and leaves its worker."""
        return await self._acknowledge(job_id, fence, status=Status.SUSPENDED, due_at=next_poll_at)

    async def fail(
        self,
        job_id: str,
        error: str,
        *,
        retry: bool,
        delay: timedelta | None = None,
        fence: Fence | None = None,
    ) -> Acknowledgement:
        """One more failure; the job becomes PENDING again with `retry`, else FAILED."""
        if not retry:
            return await self._acknowledge(job_id, fence, status=Status.FAILED, last_error=error, failures=1)
        pause = delay or timedelta(0)
        due_at = None if delay is None else add_duration(self._database.clock.now(), pause, field="delay")
        return await self._acknowledge(
            job_id,
            fence,
            status=Status.PENDING,
            last_error=error,
            failures=1,
            due_at=due_at,
            delay_us=None if delay is None else pause // timedelta(microseconds=1),
        )

    async def defer(
        self, job_id: str, until: datetime, reason: str, fence: Fence | None = None
    ) -> Acknowledgement:
        """Hand the job back unexecuted, due at `until`; `reason` is kept as its last error."""
        return await self._acknowledge(
            job_id, fence, status=Status.PENDING, last_error=reason, interruptions=1, due_at=until
        )

    async def touch(self, job_id: str, fence: Fence) -> bool:
        """Renew the lease; False if this delivery doesn't own the job any more."""
        parameters = _fenced(job_id, fence) | {"now": self._database.clock.now()}
        async with self._writing() as tx:
            place = await self._place(tx, job_id)
            return (
                await tx.execute(statements.touch(self._tables, self._database.kind), parameters | place) == 1
            )

    def open_heartbeats(self) -> SqlHeartbeats | None:
        """A channel that renews leases from threads; None inside a transaction or for a database in memory."""
        is_inside = self._transaction is not None or self._borrowed is not None
        return None if is_inside else heartbeats_of(self._database)

    async def release_stale(self, threshold: timedelta) -> LeaseSweep:
        """End leases that were not renewed for longer than `threshold`."""
        parameters = self._age(threshold) | {"prefix": f"{_HEARTBEAT_LOST}: not renewed by worker "}
        async with self._writing() as tx:
            rows = await tx.take(statements.release_stale(self._tables, self._database.kind), parameters)
            if rows:
                self._wake_groups(tx)
        jobs = _as_enqueued(rows)
        return LeaseSweep(
            released=tuple(job for job in jobs if job.status is Status.PENDING),
            exhausted=tuple(job for job in jobs if job.status is Status.FAILED),
        )

    async def expire_runaway(self, absolute_timeout: timedelta) -> list[JobRecord]:
        """Fail jobs that were delivered longer ago than `absolute_timeout`."""
        error = (
            f"LEASE_ABSOLUTE_CAP: still running {absolute_timeout.total_seconds():g} s after it was delivered"
        )
        parameters = self._age(absolute_timeout) | {"error": error}
        async with self._writing() as tx:
            rows = await tx.take(statements.expire_runaway(self._tables, self._database.kind), parameters)
            if rows:
                self._wake_groups(tx)
        return _as_enqueued(rows)

    async def cancel_by_run(self, run_id: str) -> int:
        """Make a run's PENDING and SUSPENDED jobs CANCELLED, passing over those that are being claimed."""
        parameters = {"of_run": run_id, "now": self._database.clock.now()}
        async with self._writing() as tx:
            return len(await tx.take(statements.cancel_by_run(self._tables, self._database.kind), parameters))

    async def delete_by_run_and_stages(self, run_id: str, stage_ids: Collection[str]) -> int:
        """Delete the jobs of these stages."""
        if not stage_ids:
            return 0
        names = {f"item_{number}": stage_id for number, stage_id in enumerate(sorted(set(stage_ids)))}
        names |= {"run_id": run_id}
        async with self._writing() as tx:
            deleted = await self._delete(tx, len(set(stage_ids)), names)
            if deleted:
                self._wake_groups(tx)
            return deleted

    async def _delete(self, tx: Transaction, count: int, names: Mapping[str, Any]) -> int:
        if not self._database.kind.locks_entries:
            return await tx.execute(statements.delete_jobs(self._tables, count), names)
        # One by one by their positions, so that nothing beside them is locked.
        found = await tx.fetch(statements.positions_of_stages(self._tables, count), names)
        statement = statements.delete_job_at(self._tables)
        return sum([await tx.execute(statement, {"at_position": row["position"]}) for row in found])

    async def get_jobs_by_run(self, run_id: str) -> list[JobRecord]:
        """All jobs of a run, by the time they were enqueued."""
        return [
            job_of(row) for row in await self._fetch(statements.jobs_of_run(self._tables), {"run_id": run_id})
        ]

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        """Jobs by the time they were enqueued, the newest first."""
        before = None if cursor is None else place_after("jobs", cursor)
        statuses = (
            None if query.statuses is None else tuple(sorted({Status(status) for status in query.statuses}))
        )
        if limit < 1 or statuses == ():
            return Page(items=())
        given = {"run_id": query.run_id, "workflow_id": query.workflow_id, "before": before}
        wanted = {name: value for name, value in given.items() if value is not None}
        statement = listed_jobs(self._tables, statuses, tuple(wanted))
        rows = await self._fetch(statement, wanted | {"limit": limit + 1})
        shown = rows[:limit]
        return Page(
            items=tuple(map(job_of, shown)),
            next_cursor=cursor_after_place("jobs", shown[-1]["position"]) if len(rows) > limit else None,
        )

    async def depth(self) -> int:
        """How many jobs are PENDING and due."""
        parameters = {"now": self._database.clock.now()}
        rows = await self._fetch(statements.depth(self._tables, self._database.kind), parameters)
        return int(rows[0]["depth"])

    async def _acknowledge(self, job_id: str, fence: Fence | None, **values: Any) -> Acknowledgement:
        """Settle a job: at once where the answer is wanted, else with the rest of the transaction.

        Inside a transaction a job that turns out to be somebody else's raises `SupersededError` at the latest at
        the commit.
        """
        row = _acknowledgement(job_id, fence, self._database.clock.now(), values)
        if self._transaction is not None and fence is not None:
            self._transaction.check_usable()
            self._transaction.pending.acknowledgements[job_id] = row
            self._wake_groups(self._transaction)
            return "acknowledged"
        async with self._writing() as tx:
            statement = statements.acknowledge_at_once(self._tables, self._database.kind)
            place = await self._place(tx, job_id)
            changed = await tx.execute(statement, place | {f"p_{name}": value for name, value in row.items()})
            if changed:
                self._wake_groups(tx)
                return "acknowledged"
            if fence is None:
                raise RecordNotFoundError("job", job_id)
            return "superseded"

    def _new_row(self, job: NewJob, now: datetime) -> dict[str, Any]:
        row = _new_row(job, now)
        return row | {"group_key": group_of(job, self._fairness) or ""} if self._has_groups else row

    def _wake_groups(self, tx: Transaction) -> None:
        """Wake those who wait, once this has committed: a group may have room again, or be claimed from no longer."""
        if self._fairness is not None:
            tx.pending.topics["jobs"] = None

    async def _place(self, tx: Transaction, job_id: str) -> dict[str, Any]:
        """Where a job is, for databases where it isn't reached by its id."""
        if not self._database.kind.locks_entries:
            return {}
        found = await tx.fetch(statements.place_of_job(self._tables), {"of_id": job_id})
        return {"at_position": found[0]["position"] if found else None}

    def _age(self, age: timedelta) -> dict[str, Any]:
        now = self._database.clock.now()
        before = subtract_within_calendar(now, age)
        # No database goes as far back as the longest duration.
        return {"now": now, "before": before, "age_us": (now - before) // timedelta(microseconds=1)}


def _as_enqueued(rows: Sequence[Row]) -> list[JobRecord]:
    """The jobs of rows, by the time they were enqueued; those of one call have one time, and rise by position."""
    return [job_of(row) for row in sorted(rows, key=lambda row: row["position"])]


def _stage_names(keys: Collection[tuple[str, str]]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for number, (run_id, stage_id) in enumerate(keys):
        names |= {f"run_{number}": run_id, f"stage_{number}": stage_id}
    return names


def _fenced(job_id: str, fence: Fence) -> dict[str, Any]:
    return {"of_id": job_id, "fence_started_at": fence.started_at, "fence_deliveries": fence.deliveries}


def _acknowledgement(
    job_id: str, fence: Fence | None, now: datetime, values: dict[str, Any]
) -> dict[str, Any]:
    nothing = {"due_at": None, "delay_us": None, "last_error": None, "failures": 0, "interruptions": 0}
    return {
        "id": job_id,
        "fence_started_at": None if fence is None else fence.started_at,
        "fence_deliveries": None if fence is None else fence.deliveries,
        "given_now": now,
        **nothing,
        **values,
    }


def _new_row(job: NewJob, now: datetime) -> dict[str, Any]:
    return {
        "id": job.id,
        "run_id": job.run_id,
        "stage_id": job.stage_id,
        "workflow_id": job.workflow_id,
        "definition_version": job.definition_version,
        "payload": job.payload,
        "priority": job.priority,
        "status": Status.PENDING,
        "deliveries": 0,
        "failures": 0,
        "worker_losses": 0,
        "interruptions": 0,
        "max_attempts": job.max_attempts,
        "max_worker_losses": job.max_worker_losses,
        "worker_id": None,
        "created_at": now,
        "updated_at": now,
        "started_at": None,
        "locked_at": None,
        "completed_at": None,
        "due_at": job.due_at,
        "last_error": None,
    }


def _delivered_row(row: dict[str, Any], worker_id: str, now: datetime) -> dict[str, Any]:
    return row | {
        "status": Status.RUNNING,
        "worker_id": worker_id,
        "deliveries": 1,
        "started_at": now,
        "locked_at": now,
        "due_at": None,
    }


def _dequeued(row: Mapping[str, Any]) -> DequeuedJob:
    return DequeuedJob(
        job_id=row["id"],
        run_id=row["run_id"],
        workflow_id=row["workflow_id"],
        stage_id=row["stage_id"],
        definition_version=row["definition_version"],
        payload=row["payload"],
        priority=row["priority"],
        fence=Fence(started_at=row["started_at"], deliveries=row["deliveries"]),
        failures=row["failures"],
        worker_losses=row["worker_losses"],
        max_attempts=row["max_attempts"],
        max_worker_losses=row["max_worker_losses"],
    )
