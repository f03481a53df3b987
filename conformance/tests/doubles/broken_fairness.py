"""Fair transports with one clause broken; collected by an inner run alone."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from stagewright.memory import InMemoryDatabase, InMemoryJobTransport
from stagewright.memory.group_rooms import GroupRooms
from stagewright.memory.transaction import Transaction
from stagewright.records import DequeuedJob, JobRecord, NewJob, Serves, group_of
from stagewright.status import Status
from stagewright_conformance import FairClaimSuite, FairDeliverySuite, JobGroupSuite, OpenFair
from stagewright_test_support.doubles import TransportDoubles


class FairDoubles(TransportDoubles):
    """Runs a suite of fair transports on the double that the test class names."""

    double: ClassVar[type[InMemoryJobTransport]]

    @pytest.fixture
    def open_fair(self, database: InMemoryDatabase) -> OpenFair:
        return lambda fairness: self.double(database, fairness=fairness)


class HasOtherRooms(InMemoryJobTransport):
    """Looks at the room of groups in a way of its own."""

    rooms: ClassVar[type[GroupRooms]]

    def _rooms(self, tx: Transaction) -> GroupRooms | None:
        fairness = self._fairness
        return (
            None
            if fairness is None
            else self.rooms(tx, self._database.jobs, fairness.max_concurrent_per_group)
        )


class IgnoresTheCap(HasOtherRooms):
    """Groups are kept and don't count."""

    class rooms(GroupRooms):  # noqa: N801 - what the double has in the place of a type
        def has_room(self, group: str | None) -> bool:
            return super().has_room(group) or True


class TestIgnoresTheCap(FairDoubles, FairDeliverySuite):
    double = IgnoresTheCap


class ForgetsTheBatch(HasOtherRooms):
    """What the same call has taken doesn't count."""

    class rooms(GroupRooms):  # noqa: N801 - as above
        def take(self, group: str | None) -> None:
            self._idle_locks.pop(group, None)


class TestForgetsTheBatch(FairDoubles, FairDeliverySuite):
    double = ForgetsTheBatch


class CountsWhoSleeps(HasOtherRooms):
    """A SUSPENDED job keeps its place."""

    class rooms(GroupRooms):  # noqa: N801 - as above
        def _running(self, group: str | None) -> int:
            return super()._running(group) + len(
                self._tx.where(self._jobs, "group", (Status.SUSPENDED, group))
            )


class TestCountsWhoSleeps(FairDoubles, FairDeliverySuite):
    double = CountsWhoSleeps


class CountsOneDefinition(HasOtherRooms):
    """RUNNING jobs of other workflows have no place."""

    class rooms(GroupRooms):  # noqa: N801 - as above
        def _running(self, group: str | None) -> int:
            running = self._tx.where(self._jobs, "group", (Status.RUNNING, group))
            return sum(row.record.workflow_id == "orders" for row in running)


class TestCountsOneDefinition(FairDoubles, FairDeliverySuite):
    double = CountsOneDefinition


class SeesCommittedClaimsAlone(HasOtherRooms):
    """A claim that has not committed yet has no place."""

    class rooms(GroupRooms):  # noqa: N801 - as above
        def _look(self, group: str | None) -> int:
            return self._cap - self._running(group)


class TestSeesCommittedClaimsAlone(FairDoubles, FairClaimSuite):
    double = SeesCommittedClaimsAlone


class CountsBeforeItsTurn(InMemoryJobTransport):
    """Two callers that count at once both find the last place free."""

    counted: Counter[str | None]

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        async with self._statement("count") as tx:
            running = tx.where(self._database.jobs, "status", Status.RUNNING)
            self.counted = Counter(row.group for row in running)
        await asyncio.sleep(0)
        return await super().dequeue(worker_id=worker_id, serves=serves, limit=limit)

    def _rooms(self, tx: Transaction) -> GroupRooms | None:
        rooms = super()._rooms(tx)
        if rooms is not None:
            groups = {row.group for row in tx.where(self._database.jobs, "status", Status.PENDING)}
            rooms._rooms = {group: rooms._cap - self.counted[group] for group in groups}
        return rooms


class TestCountsBeforeItsTurn(FairDoubles, FairDeliverySuite):
    double = CountsBeforeItsTurn


class GivesTurns(InMemoryJobTransport):
    """The group with the fewest RUNNING jobs is first, whatever the priorities and ages."""

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        async with self.transaction() as tx, tx._statement("level") as rows:
            jobs = self._database.jobs
            running = Counter(row.group for row in rows.where(jobs, "status", Status.RUNNING))
            real = {row.record.id: row.record.priority for row in rows.all(jobs)}
            for row in rows.all(jobs):
                rows.put(jobs, replace(row, record=replace(row.record, priority=-running[row.group])))
            taken = await InMemoryJobTransport.dequeue(tx, worker_id=worker_id, serves=serves, limit=limit)
            for row in rows.all(jobs):
                rows.put(jobs, replace(row, record=replace(row.record, priority=real[row.record.id])))
        return [replace(job, priority=real[job.job_id]) for job in taken]


class TestGivesTurns(FairDoubles, FairDeliverySuite):
    double = GivesTurns


class TellsNobody(InMemoryJobTransport):
    """A place that is free is found by who looks, and nobody is woken."""

    def _wake_groups(self, tx: Transaction) -> None:
        return


class TestTellsNobody(FairDoubles, FairDeliverySuite):
    double = TellsNobody


class HasOtherGroups(InMemoryJobTransport):
    """Puts jobs into groups of its own making."""

    def group_of(self, job: NewJob) -> str | None:
        """The group, wrongly."""
        raise NotImplementedError

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        ids = await super().enqueue_parallel(jobs)
        async with self._statement("regroup") as tx:
            for job in jobs:
                row = tx.get(self._database.jobs, (job.run_id, job.stage_id))
                assert row is not None
                tx.put(self._database.jobs, replace(row, group=self.group_of(job)))
        return ids


class KnowsTextsOnly(HasOtherGroups):
    """Values that are no texts are none."""

    def group_of(self, job: NewJob) -> str | None:
        group = group_of(job, self._fairness)
        return group if group is not None and f"'{group}'" in repr(job) else None


class TestKnowsTextsOnly(FairDoubles, JobGroupSuite):
    double = KnowsTextsOnly


class LetsTheNamelessThrough(HasOtherGroups):
    """Jobs without a value have no cap."""

    def group_of(self, job: NewJob) -> str | None:
        return group_of(job, self._fairness) or job.id


class TestLetsTheNamelessThrough(FairDoubles, JobGroupSuite):
    double = LetsTheNamelessThrough


class TakesPayloadsFirst(HasOtherGroups):
    """A key counts where the payload says nothing."""

    def group_of(self, job: NewJob) -> str | None:
        return group_of(replace(job, group_key=None), self._fairness) or group_of(job, self._fairness)


class TestTakesPayloadsFirst(FairDoubles, JobGroupSuite):
    double = TakesPayloadsFirst


class CutsKeys(HasOtherGroups):
    """Long keys are cut."""

    def group_of(self, job: NewJob) -> str | None:
        value = job.payload.get("config")
        text = value.get("tenantId") if isinstance(value, dict) else None
        return text[:50] if isinstance(text, str) and text else group_of(job, self._fairness)


class TestCutsKeys(FairDoubles, JobGroupSuite):
    double = CutsKeys


class ShowsTheGroup(InMemoryJobTransport):
    """The key stands in the payload."""

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        keyed = [job for job in jobs if job.group_key is not None]
        shown = {job.id: replace(job, payload=job.payload | {"group_key": job.group_key}) for job in keyed}
        return await super().enqueue_parallel([shown.get(job.id, job) for job in jobs])


class TestShowsTheGroup(FairDoubles, JobGroupSuite):
    double = ShowsTheGroup


class ForgetsWhoSleeps(InMemoryJobTransport):
    """A job that is resumed is of the group of what it is resumed with."""

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        standing = await super().resume(jobs)
        async with self._statement("regroup") as tx:
            for job in jobs:
                row = tx.get(self._database.jobs, (job.run_id, job.stage_id))
                if row is not None:
                    tx.put(self._database.jobs, replace(row, group=group_of(job, self._fairness)))
        return standing


class TestForgetsWhoSleeps(FairDoubles, JobGroupSuite):
    double = ForgetsWhoSleeps
