"""One store with its kernel, and what is done there."""

import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

from stagewright import Kernel, WorkflowRegistry
from stagewright.commands import (
    AnnotationInput,
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    ExecuteJobResult,
    FlushOutbox,
    FromStage,
    HeartbeatJob,
    JobRef,
    LastFailure,
    ListVersions,
    PollSuspendedStages,
    PurgeRuns,
    ReapStaleLeases,
    ReapStuckRuns,
    RedriveRun,
    ReplayDeadLetters,
    RerunFrom,
    SignalStep,
    Start,
    TransitionRun,
)
from stagewright.errors import PartialDeliveryError, StagewrightError
from stagewright.events import Event
from stagewright.hosting import HostSettings, run_job, run_maintenance_tick
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs
from stagewright.records import DequeuedJob
from stagewright_histories import actions
from stagewright_histories.actions import Action, FlowSpec
from stagewright_histories.bodies import Doings, build_flows, stage_id, step_id
from stagewright_histories.differences import Names

__all__ = ["Sink", "World"]

_SETTINGS = HostSettings(
    worker_id="upkeep",
    stale_lease_threshold=timedelta(seconds=20),
    job_absolute_timeout=timedelta(seconds=60),
    max_claims_per_tick=2,
)
_SPILLS = 300


class _Ids:
    """Ids that count; a store that finds out late that somebody was overtaken has used up more of them."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new_id(self) -> str:
        return f"id-{next(self._numbers):06}"


class _NoChance:
    def uniform(self) -> float:
        return 0.25


class Sink:
    """Accepts events and refuses them, as it is told before each flush.

    Attributes:
        max_retries: Refusals of one event until it becomes a dead letter.
        told: What it was given, by run: the events' sequences, and whether it took them.
    """

    max_retries = 2

    def __init__(self) -> None:
        self.told: dict[str, list[tuple[int | None, frozenset[str], bool]]] = {}
        self._accepts = self._refuses = 0

    def expect(self, *, accepts: int, refuses: int) -> None:
        """Accept so many, then refuse so many, then accept."""
        self._accepts, self._refuses = accepts, refuses

    async def emit(self, event: Event) -> None:
        is_refused = not self._accepts and self._refuses > 0
        told = self.told.setdefault(event.run_id, [])
        told.append((event.sequence, event.delivered_to, not is_refused))
        self._accepts = max(0, self._accepts - 1)
        if is_refused:
            self._refuses -= 1
            if self._refuses % 2:
                raise PartialDeliveryError(frozenset({"first"}), "not now")
            raise ConnectionError("not now")


class World:
    """A store, and those who work on it.

    Args:
        name: What it is called in a difference.
        ports: A kernel over the store; its ports are used.
        flows: The workflows of the history.

    Attributes:
        name: What it is called.
        names: The names of its generated ids.
        kernel: The kernel of the build that works at the moment.
        sink: Who is given events.
    """

    def __init__(self, name: str, ports: Kernel, flows: Sequence[FlowSpec]) -> None:
        self.name = name
        self.names = Names()
        self.sink = Sink()
        doings, ids = Doings(), _Ids()
        self._builds = [
            Kernel(
                persistence=ports.ports.persistence,
                job_transport=ports.ports.job_transport,
                blob_store=ports.ports.blob_store,
                step_ledger=ports.ports.step_ledger,
                event_sink=self.sink,
                run_reader=ports.ports.run_reader,
                clock=ports.ports.clock,
                registry=WorkflowRegistry(build_flows(flows, doings, is_later=is_later)),
                ids=ids,
                random=_NoChance(),
                spill_threshold_bytes=_SPILLS,
                idempotency_stale_after=60,
            )
            for is_later in (False, True)
        ]
        has_batches = any(stage.is_batch for flow in flows for group in flow.groups for stage in group)
        # Batches are asked side by side, and the pace of a store would decide which of them is given an id first.
        self._most_checks = 1 if has_batches else 10
        self._run_ids: list[str] = []
        self._held: list[DequeuedJob] = []
        self._doers: dict[type[Any], Callable[[Any], Awaitable[Any]]] = {
            actions.Create: self._create,
            actions.ClaimRuns: lambda do: self._dispatch(ClaimPendingRuns("operator", max_claims=do.limit)),
            actions.Work: self._work,
            actions.Hold: self._hold,
            actions.Take: self._take,
            actions.ExecuteHeld: self._execute_held,
            actions.ExecuteUnasked: self._execute_unasked,
            actions.Beat: self._beat,
            actions.Cancel: lambda do: self._dispatch(CancelRun(self._run(do.run), reason="enough")),
            actions.Redrive: self._redrive,
            actions.RerunFromStage: self._rerun,
            actions.Signal: self._signal,
            actions.Annotate: self._annotate,
            actions.Transition: lambda do: self._dispatch(TransitionRun(self._run(do.run))),
            actions.Poll: self._poll,
            actions.EnqueueOwed: lambda do: self._dispatch(EnqueueOwedJobs(owed_for=do.owed_for)),
            actions.ReapLeases: lambda do: self._dispatch(
                ReapStaleLeases(do.after, absolute_timeout=do.absolute)
            ),
            actions.ReapStuck: lambda do: self._dispatch(ReapStuckRuns(do.after)),
            actions.Tick: self._tick,
            actions.Flush: self._flush,
            actions.Replay: lambda do: self._dispatch(ReplayDeadLetters(do.limit)),
            actions.Purge: self._purge,
            actions.Deploy: self._deploy,
            actions.ListAll: self._list_all,
        }

    @property
    def kernel(self) -> Kernel:
        return self._builds[0]

    async def do(self, action: Action) -> object:
        """Do it, and say what came of it: a result, or the error in its place."""
        try:
            return await self._doers[type(action)](action)
        except StagewrightError as error:
            return error

    async def _dispatch(self, command: Any) -> Any:
        return await self.kernel.dispatch(command)

    def _run(self, number: int) -> str:
        return self._run_ids[number % len(self._run_ids)] if self._run_ids else "nobody"

    async def _create(self, do: actions.Create) -> object:
        said = (
            []
            if do.annotations is None
            else [AnnotationInput(attributes=do.annotations, idempotency_key=do.key)]
        )
        created = await self._dispatch(
            CreateRun(
                f"flow-{do.flow}",
                do.input,
                priority=do.priority,
                idempotency_key=do.key,
                annotations=said,
            )
        )
        if created.run_id not in self._run_ids:
            self._run_ids.append(created.run_id)
        return created

    async def _work(self, do: actions.Work) -> object:
        done: list[object] = []
        following: list[DequeuedJob] = []
        for _ in range(do.times):
            if not following:
                claimed = await self._dispatch(
                    ClaimPendingRuns("worker", max_claims=1, max_jobs=int(do.goes_on))
                )
                done.append(claimed)
                following = [*claimed.jobs] or [*(await self._dispatch(ClaimJobs("worker"))).jobs]
            if not following:
                break
            job = following.pop()
            result = await self._run_job(job, goes_on=do.goes_on)
            done.extend((job, result))
            following = [] if result.next_job is None else [result.next_job]
        self._held.extend(following)
        return done

    async def _run_job(self, job: DequeuedJob, *, goes_on: bool) -> ExecuteJobResult:
        return await run_job(self.kernel, job, successor=(lambda: "worker") if goes_on else None)

    async def _take(self, do: actions.Take) -> object:
        claimed = await self._dispatch(ClaimPendingRuns(do.worker, max_claims=do.limit, max_jobs=do.limit))
        self._held.extend(claimed.jobs)
        return claimed

    async def _hold(self, do: actions.Hold) -> object:
        claimed = await self._dispatch(ClaimJobs(do.worker, limit=do.limit))
        self._held.extend(claimed.jobs)
        return claimed

    async def _execute_held(self, do: actions.ExecuteHeld) -> object:
        if not self._held:
            return None
        number = do.job % len(self._held)
        job = self._held[number] if do.keeps else self._held.pop(number)
        if do.key is None:
            result = await self._run_job(job, goes_on=do.goes_on)
            if result.next_job is not None:
                self._held.append(result.next_job)
            return result
        return await self._dispatch(
            ExecuteJob(
                job.run_id,
                job.workflow_id,
                job.stage_id,
                job=JobRef(job.job_id, job.fence),
                idempotency_key=do.key,
            )
        )

    async def _execute_unasked(self, do: actions.ExecuteUnasked) -> object:
        run_id = self._run(do.run)
        run = await self.kernel.runs.get(run_id)
        stages = await self.kernel.runs.stages(run_id)
        if run is None or not stages:
            return None
        stage = stages[do.stage % len(stages)]
        return await self._dispatch(ExecuteJob(run_id, run.workflow_id, stage.stage_id))

    async def _beat(self, do: actions.Beat) -> object:
        if not self._held:
            return None
        job = self._held[do.job % len(self._held)]
        return await self._dispatch(HeartbeatJob(job.job_id, job.run_id, fence=job.fence))

    async def _redrive(self, do: actions.Redrive) -> object:
        origins: dict[str, LastFailure | Start | FromStage] = {
            "failure": LastFailure(),
            "start": Start(),
            "stage": FromStage(stage_id(do.stage)),
        }
        versions = {"pinned": None, "latest": "latest", "unknown": "v0"}
        return await self._dispatch(
            RedriveRun(
                self._run(do.run),
                from_=origins[do.origin],
                definition_version=versions[do.version],
                idempotency_key=do.key,
            )
        )

    async def _rerun(self, do: actions.RerunFromStage) -> object:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return await self._dispatch(
                RerunFrom(self._run(do.run), stage_id(do.stage), idempotency_key=do.key)
            )

    async def _signal(self, do: actions.Signal) -> object:
        return await self._dispatch(
            SignalStep(self._run(do.run), stage_id(do.stage), step_id(do.step), payload=do.payload)
        )

    async def _annotate(self, do: actions.Annotate) -> object:
        await self.kernel.annotations.attach(
            self._run(do.run), {do.name: do.value}, idempotency_key=do.key, emit_event=do.emits
        )
        return None

    async def _poll(self, do: actions.Poll) -> object:
        return await self._dispatch(PollSuspendedStages(max_checks=min(do.limit, self._most_checks)))

    async def _tick(self, do: actions.Tick) -> object:
        settings = replace(_SETTINGS, max_suspended_checks_per_tick=self._most_checks)
        return await run_maintenance_tick(self.kernel, settings)

    async def _flush(self, do: actions.Flush) -> object:
        self.sink.expect(accepts=do.accepts, refuses=do.refuses)
        try:
            return await self._dispatch(FlushOutbox(do.limit))
        finally:
            self.sink.expect(accepts=0, refuses=0)

    async def _purge(self, do: actions.Purge) -> object:
        older_than = self.kernel.ports.clock.now() - timedelta(seconds=do.older_than)
        return await self._dispatch(PurgeRuns(older_than, limit=do.limit))

    async def _deploy(self, do: actions.Deploy) -> object:
        self._builds.reverse()
        return None

    async def _list_all(self, do: actions.ListAll) -> object:
        listed: list[object] = [await self._dispatch(ListVersions())]
        cursor: str | None = None
        while True:
            page = await self.kernel.runs.list(limit=do.limit, cursor=cursor)
            listed.append(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return listed
