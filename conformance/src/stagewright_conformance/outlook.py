"""`ForeseesWork`: one look says what there is to do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from stagewright.ports import ForeseesWork, JobTransport, Persistence
from stagewright.records import RunPatch, StagePatch, WorkOutlook
from stagewright.status import Status
from stagewright_conformance.samples import LATER, MOMENT, a_job, a_run, a_stage, an_event
from stagewright_conformance.suite import PersistenceSuite

__all__ = ["JobOutlookSuite", "OutlookSuite"]


class OutlookSuite(PersistenceSuite):
    """`ForeseesWork` of a persistence; an adapter without it has no such test class.

    Fixtures: those of `PersistenceSuite`.
    """

    async def look(self, persistence: Persistence) -> WorkOutlook:
        """What there is to do at `LATER`."""
        assert isinstance(persistence, ForeseesWork)
        return await persistence.outlook(LATER)

    async def test_an_empty_store_has_nothing_to_do(self, persistence: Persistence) -> None:
        """`outlook`: what waits now."""
        assert await self.look(persistence) == WorkOutlook()

    async def test_runs_are_foreseen_until_they_have_ended(self, persistence: Persistence) -> None:
        """`WorkOutlook.pending_runs`, `running_runs`: whether a run is in that state."""
        run = a_run()
        await persistence.create_run(run)
        assert await self.look(persistence) == WorkOutlook(pending_runs=True)
        await persistence.update_run(run.id, RunPatch(updated_at=LATER, status=Status.RUNNING))
        assert await self.look(persistence) == WorkOutlook(running_runs=True)
        await persistence.update_run(run.id, RunPatch(updated_at=LATER, status=Status.COMPLETED))
        assert await self.look(persistence) == WorkOutlook()

    async def test_the_first_suspended_stage_is_foreseen(self, persistence: Persistence) -> None:
        """`WorkOutlook.next_poll_at`: when the first SUSPENDED stage is due, in the past or later."""
        run = a_run(status=Status.COMPLETED)
        await persistence.create_run(run)
        stages = [a_stage(run.id, stage_id=name, status=Status.SUSPENDED) for name in ("a", "b", "c")]
        moments = (LATER + timedelta(hours=1), LATER + timedelta(microseconds=1), None)
        for stage, moment in zip(stages, moments, strict=True):
            await persistence.create_stage(replace(stage, next_poll_at=moment))
        await persistence.create_stage(replace(a_stage(run.id, stage_id="d"), next_poll_at=MOMENT))
        assert (await self.look(persistence)).next_poll_at == LATER + timedelta(microseconds=1)
        await persistence.update_stage(stages[0].id, StagePatch(updated_at=LATER, next_poll_at=MOMENT))
        assert (await self.look(persistence)).next_poll_at == MOMENT

    async def test_events_are_foreseen_until_the_sink_has_them(self, persistence: Persistence) -> None:
        """`WorkOutlook.undelivered_events`: whether an event may be offered now."""
        run = a_run(status=Status.COMPLETED)
        await persistence.create_run(run)
        event = an_event(run.id)
        await persistence.append_outbox_events([event])
        assert (await self.look(persistence)).undelivered_events
        held = await persistence.claim_unpublished_outbox_events(
            1, token="t", now=MOMENT, claimed_until=LATER
        )
        assert len(held) == 1
        await persistence.record_outbox_failure(
            event.id,
            token="t",
            error="no",
            delivered_to=frozenset(),
            now=MOMENT,
            retry_at=LATER + timedelta(seconds=1),
        )
        assert not (await self.look(persistence)).undelivered_events
        later = LATER + timedelta(seconds=2)
        await persistence.claim_unpublished_outbox_events(1, token="t", now=later, claimed_until=later)
        await persistence.mark_outbox_events_published([event.id], token="t", now=later)
        assert not (await self.look(persistence)).undelivered_events


class JobOutlookSuite(PersistenceSuite):
    """`ForeseesWork` of a persistence whose database keeps the jobs too.

    Fixtures: those of `PersistenceSuite`, and `transport` (required: empty, in the same database).
    """

    @pytest.fixture
    def transport(self) -> JobTransport:
        """The transport in the same database, empty."""
        raise NotImplementedError(
            "override the fixture `transport` with one in the database of `persistence`"
        )

    async def test_the_first_job_is_foreseen(self, persistence: Persistence, transport: JobTransport) -> None:
        """`WorkOutlook.next_job_at`: when the first PENDING job is due, the time that was asked with or later."""
        assert isinstance(persistence, ForeseesWork)
        assert (await persistence.outlook(LATER)).next_job_at is None
        soon, late = LATER + timedelta(seconds=1), LATER + timedelta(hours=1)
        await transport.enqueue_parallel([a_job(due_at=late), a_job(due_at=soon)])
        assert (await persistence.outlook(LATER)).next_job_at == soon
        assert (await persistence.outlook(late)).next_job_at == late
        await transport.enqueue_parallel([a_job()])
        assert (await persistence.outlook(LATER)).next_job_at == LATER
        await transport.dequeue(worker_id="w")
        assert (await persistence.outlook(LATER)).next_job_at == soon

    async def test_a_held_job_is_foreseen_whatever_became_of_its_run(
        self, persistence: Persistence, transport: JobTransport
    ) -> None:
        """`WorkOutlook.held_jobs`: whether a worker has a job; its run need not be RUNNING any more."""
        assert isinstance(persistence, ForeseesWork)
        run = a_run(status=Status.CANCELLED)
        await persistence.create_run(run)
        await transport.enqueue_parallel([a_job(run_id=run.id)])
        assert not (await persistence.outlook(LATER)).held_jobs
        [taken] = await transport.dequeue(worker_id="w")
        assert (await persistence.outlook(LATER)).held_jobs
        assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"
        assert not (await persistence.outlook(LATER)).held_jobs
