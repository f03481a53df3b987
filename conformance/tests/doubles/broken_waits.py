"""Stores that lose, repeat or misplace what waits; collected by an inner run alone."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from stagewright.memory import InMemoryJobTransport, InMemoryPersistence
from stagewright.records import JobRecord, NewJob, RunRecord, Serves, StoredStage
from stagewright.status import Status
from stagewright_conformance import JobResumptionSuite, StuckRunSuite, WaitingStageSuite
from stagewright_test_support.doubles import PersistenceDoubles, TransportDoubles


class StartsCountersAnew(InMemoryJobTransport):
    """A suspended job is replaced by a new one."""

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        for job in jobs:
            there = [one for one in await self.get_jobs_by_run(job.run_id) if one.stage_id == job.stage_id]
            if not there or there[0].status not in (Status.PENDING, Status.RUNNING):
                await self.enqueue_parallel([job])
        return await super().resume(jobs)


class TestStartsCountersAnew(TransportDoubles, JobResumptionSuite):
    double = StartsCountersAnew


class TakesJobsFromTheirWorkers(InMemoryJobTransport):
    """A job that a worker has is made claimable."""

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        table = self.database.jobs
        async with self._statement("take") as tx:
            for job in jobs:
                row = tx.get(table, (job.run_id, job.stage_id))
                if row is not None and row.record.status is Status.RUNNING:
                    tx.put(table, replace(row, record=replace(row.record, status=Status.SUSPENDED)))
        return await super().resume(jobs)


class TestTakesJobsFromTheirWorkers(TransportDoubles, JobResumptionSuite):
    double = TakesJobsFromTheirWorkers


class WakesOnlyWhatSleeps(InMemoryJobTransport):
    """A job that has ended stays as it is."""

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        ended, others = [], []
        for job in jobs:
            there = [one for one in await self.get_jobs_by_run(job.run_id) if one.stage_id == job.stage_id]
            if there and there[0].status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
                ended += there
            else:
                others.append(job)
        return [*await super().resume(others), *ended]


class TestWakesOnlyWhatSleeps(TransportDoubles, JobResumptionSuite):
    double = WakesOnlyWhatSleeps


class AnswersByStage(InMemoryJobTransport):
    """Jobs are answered the last one first."""

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        return (await super().resume(jobs))[::-1]


class TestAnswersByStage(TransportDoubles, JobResumptionSuite):
    double = AnswersByStage


class FiltersAfterTheLimit(InMemoryPersistence):
    """What isn't served uses up the places of what is."""

    async def get_suspended_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        first = await super().get_suspended_stages(before, limit=limit)
        served = await super().get_suspended_stages(before, limit=999, serves=serves)
        return [stage for stage in first if stage in served]


class TestFiltersAfterTheLimit(PersistenceDoubles, WaitingStageSuite):
    double = FiltersAfterTheLimit


class HoldsNoRun(InMemoryPersistence):
    """Stages are found, and their runs are anybody's."""

    async def get_suspended_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        return await InMemoryPersistence(self.database).get_suspended_stages(
            before, limit=limit, serves=serves
        )


class TestHoldsNoRun(PersistenceDoubles, WaitingStageSuite):
    double = HoldsNoRun


class PollsInAnyOrder(InMemoryPersistence):
    """Due stages come the latest first."""

    async def get_suspended_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        due = await super().get_suspended_stages(before, limit=999, serves=serves)
        return due[::-1][:limit]


class TestPollsInAnyOrder(PersistenceDoubles, WaitingStageSuite):
    double = PollsInAnyOrder


class WaitsForHeldRuns(InMemoryPersistence):
    """Finding stages waits for whoever holds their runs."""

    async def get_suspended_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        for stage in await InMemoryPersistence(self.database).get_suspended_stages(before, limit=999):
            await self.lock_runs([stage.run_id])
        return await super().get_suspended_stages(before, limit=limit, serves=serves)


class TestWaitsForHeldRuns(PersistenceDoubles, WaitingStageSuite):
    double = WaitsForHeldRuns


class ForgetsResumedStages(InMemoryPersistence):
    """Only a stage that was never started is owed a job."""

    async def get_owed_stages(
        self, before: datetime, *, limit: int, serves: Serves = None
    ) -> list[StoredStage]:
        owed = await super().get_owed_stages(before, limit=999, serves=serves)
        return [stage for stage in owed if stage.status is Status.PENDING][:limit]


class TestForgetsResumedStages(PersistenceDoubles, WaitingStageSuite):
    double = ForgetsResumedStages


class ReapsSleepers(InMemoryPersistence):
    """A run that waits for a time counts as stuck."""

    async def get_stuck_runs(
        self, before: datetime, *, limit: int, after: str | None = None, serves: Serves = None
    ) -> list[RunRecord]:
        asleep = {stage.run_id for stage in self.database.stages.where("status", Status.SUSPENDED).values()}
        stuck = await super().get_stuck_runs(before, limit=limit, after=after, serves=serves)
        sleepers = [run for run in self.database.runs.all().values() if run.id in asleep]
        return stuck + [run for run in sleepers if run not in stuck]


class TestReapsSleepers(PersistenceDoubles, StuckRunSuite):
    double = ReapsSleepers


class LooksAtRunsAlone(InMemoryPersistence):
    """A stage that has changed doesn't count."""

    async def get_stuck_runs(
        self, before: datetime, *, limit: int, after: str | None = None, serves: Serves = None
    ) -> list[RunRecord]:
        far = datetime(2999, 1, 1, tzinfo=UTC)
        stuck = await super().get_stuck_runs(far, limit=999, after=after, serves=serves)
        return [run for run in stuck if run.updated_at <= before][:limit]


class TestLooksAtRunsAlone(PersistenceDoubles, StuckRunSuite):
    double = LooksAtRunsAlone


class KnowsOnePage(InMemoryPersistence):
    """Every page after the first is empty."""

    async def get_stuck_runs(
        self, before: datetime, *, limit: int, after: str | None = None, serves: Serves = None
    ) -> list[RunRecord]:
        return [] if after else await super().get_stuck_runs(before, limit=limit, serves=serves)


class TestKnowsOnePage(PersistenceDoubles, StuckRunSuite):
    double = KnowsOnePage
