"""Running workflows in a test: in memory, with a clock that the test moves."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from stagewright.commands import (
    CancelRun,
    CancelRunResult,
    CreateRun,
    FromStage,
    LastFailure,
    RedriveRun,
    RedriveRunResult,
    SignalStep,
    SignalStepResult,
    Start,
)
from stagewright.errors import HarnessStalledError, InvalidSettingError, RunNotFoundError
from stagewright.hosting.registries import Workflows, registry_of
from stagewright.kernel import Kernel
from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.ports import EventSink, KernelServices
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright.testing.collecting_sink import CollectingEventSink
from stagewright.testing.fake_clock import FakeClock
from stagewright.testing.harness.all_runs import all_run_ids
from stagewright.testing.harness.mocked_ai import MockedAI
from stagewright.testing.harness.mocked_workflows import mocked_registry
from stagewright.testing.harness.report import HarnessTickReport
from stagewright.testing.harness.result import HarnessResult
from stagewright.testing.harness.step_mocks import MockBook
from stagewright.testing.harness.steps import HarnessSteps
from stagewright.testing.harness.ticking import Ticker
from stagewright.testing.harness.timeline import events_of, timeline_of

__all__ = ["Harness"]

_MOST_TICKS: Final = 10_000
_IDLE: Final = "there is nothing left to do and nothing to wait for"


class _SteadyRandom:
    """The same numbers in every test, so that pauses between attempts are the same."""

    def __init__(self) -> None:
        self._source = Random(0)

    def uniform(self) -> float:
        return self._source.random()


class Harness:
    """The engine in a test: the kernel that deployments use over stores in memory, driven tick by tick.

    Nothing has to be started or closed, and no time passes but by `clock.advance`, or when a tick finds nothing to do
    before a later moment. It may be used from several tasks, and from one event loop after the other; what runs inside
    of a tick, such as a body, may signal and cancel, and gets `HarnessBusyError` if it ticks.

    Attributes:
        kernel: The kernel, for everything that has no shorthand here; its registry has the workflows with mocks.
        clock: The kernel's clock.
        event_sink: What events are delivered to; a `CollectingEventSink` unless given.
        steps: Mocks of durable steps, and what became of steps.
    """

    def __init__(
        self,
        workflows: Workflows,
        *,
        services: KernelServices | None = None,
        clock: FakeClock | None = None,
        max_ticks: int = _MOST_TICKS,
        event_sink: EventSink | None = None,
    ) -> None:
        """Make one, with an empty store.

        Args:
            workflows: A workflow, several of them, or a registry, which may change later.
            services: What bodies get beside the ports, such as `ctx.ai`.
            clock: Where time comes from; by default a clock that stands at the beginning of 2025.
            max_ticks: How many ticks `run`, `finish` and `tick_until` make at the most.
            event_sink: Where events go.

        Raises:
            DefinitionError, InvalidSettingError: If an argument is none of what it may be.
        """
        self.clock = _checked_clock(FakeClock() if clock is None else clock)
        # A sink may be empty, and false by that.
        self.event_sink: EventSink = CollectingEventSink() if event_sink is None else event_sink
        self._max_ticks = _checked_ticks(max_ticks)
        self._run_ids: list[str] = []
        self._book = MockBook()
        self._ai = MockedAI(_checked_services(KernelServices() if services is None else services))
        database = InMemoryDatabase(clock=self.clock)
        self.kernel = Kernel(
            persistence=InMemoryPersistence(database),
            blob_store=InMemoryBlobStore(database),
            job_transport=InMemoryJobTransport(database),
            step_ledger=InMemoryStepLedger(database),
            event_sink=self.event_sink,
            clock=self.clock,
            registry=mocked_registry(registry_of(workflows, subject="Harness"), self._book),
            services=self._ai.services,
            random=_SteadyRandom(),
        )
        self.steps = HarnessSteps(self.kernel, self._book, self._run_ids)
        self._ticker = Ticker(self.kernel, self.clock)

    async def run(
        self, workflow_id: str, input: object = None, config: Mapping[str, object] | None = None
    ) -> HarnessResult:
        """Create a run and drive it until it has ended, moving the clock over whatever it waits for.

        Args:
            workflow_id: The workflow.
            input: The run's input.
            config: Its config, by stage id.

        Raises:
            HarnessStalledError: If it doesn't end within `max_ticks`, or nothing could ever end it.
            StepMockError: If a mock can't stand for the step that it was made for.
            StagewrightError: Whatever `CreateRun` raises.
        """
        self._ticker.refuse_inside()
        return await self.finish(await self.start(workflow_id, input, config))

    async def start(
        self, workflow_id: str, input: object = None, config: Mapping[str, object] | None = None
    ) -> str:
        """Create a run, and do nothing with it yet.

        Returns:
            The run's id.

        Raises:
            StagewrightError: Whatever `CreateRun` raises.
        """
        command = CreateRun(workflow_id=workflow_id, input=input, config={} if config is None else config)
        created = await self.kernel.dispatch(command)
        self._follow(created.run_id)
        return created.run_id

    async def finish(self, run_id: str, *, max_ticks: int | None = None) -> HarnessResult:
        """Drive a run until it has ended, as `run` does.

        Raises:
            RunNotFoundError: If there is no such run.
            HarnessStalledError, StepMockError: As `run` does.
        """
        await self._read(run_id)
        self._follow(run_id)
        reports = await self._tick_until(
            lambda: self._has_ended(run_id),
            awaited=f"run {run_id!r} was to end",
            max_ticks=self._max_ticks if max_ticks is None else _checked_ticks(max_ticks),
        )
        await self._ticker.deliver_events()
        return replace(await self.result(run_id), reports=reports)

    async def result(self, run_id: str) -> HarnessResult:
        """A run as it stands, without moving anything.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        run = await self._read(run_id)
        return HarnessResult(
            run_id=run.id,
            status=run.status,
            output=run.output,
            error=run.error,
            stages=tuple(await self.kernel.runs.stages(run_id)),
            events=tuple(await events_of(self.kernel, run_id)),
            reports=(),
            timeline=await timeline_of(self.kernel, run_id),
        )

    async def status(self, run_id: str) -> Status:
        """The status of a run.

        Raises:
            RunNotFoundError: If there is no such run.
        """
        return (await self._read(run_id)).status

    async def tick(self) -> HarnessTickReport:
        """Do once what all workers of a deployment would do at this moment.

        Runs are claimed, every job that is due is executed to its end, waits that are over are resumed, events are
        delivered. If there was nothing of this to do, the clock is moved to the next moment at which there is.

        Raises:
            StepMockError: If a mock can't stand for the step that it was made for.
            HarnessBusyError: If a body or an event sink of this very tick asks, or another event loop is in a tick.
        """
        report = await self._ticker.tick()
        self._book.raise_misuse()
        return report

    async def tick_until(
        self, condition: Callable[[], bool | Awaitable[bool]], *, max_ticks: int | None = None
    ) -> tuple[HarnessTickReport, ...]:
        """Tick until something is so; it is asked before the first tick and after each.

        Args:
            condition: Such as `lambda: clock.now() >= noon`; it may be an `async def`, or return what is to be awaited.
            max_ticks: How many ticks at the most, in the place of the harness's own number.

        Returns:
            What the ticks did.

        Raises:
            HarnessStalledError: If it never is.
            StepMockError: If a mock can't stand for the step that it was made for.
        """
        most = self._max_ticks if max_ticks is None else _checked_ticks(max_ticks)
        return await self._tick_until(condition, awaited="the condition was to hold", max_ticks=most)

    async def cancel(self, run_id: str, reason: str | None = None) -> CancelRunResult:
        """Cancel a run. A body that is at work is told by `ctx.abort`, and cut off a second later."""
        return await self.kernel.dispatch(CancelRun(run_id, reason=reason))

    async def signal(
        self, run_id: str, stage_id: str, step_id: str, payload: object = None
    ) -> SignalStepResult:
        """Send a signal to a step of `ctx.step.wait_for_signal`; it may come before the step asks.

        Raises:
            StagewrightError: Whatever `SignalStep` raises.
        """
        return await self.kernel.dispatch(SignalStep(run_id, stage_id, step_id, payload=payload))

    async def redrive(
        self,
        run_id: str,
        from_: LastFailure | Start | FromStage | None = None,
        *,
        definition_version: str | None = None,
    ) -> RedriveRunResult:
        """Set an ended run going again, by default from where it failed; `finish` drives it then.

        Raises:
            StagewrightError: Whatever `RedriveRun` raises.
        """
        command = RedriveRun(run_id, from_=from_ or LastFailure(), definition_version=definition_version)
        redriven = await self.kernel.dispatch(command)
        self._follow(run_id)
        return redriven

    def mock_ai(self, ai: Any) -> None:
        """Let `ctx.ai` be this object in every body from now on; None gives back what `services` makes."""
        self._ai.stand_in = ai

    async def timeline(self, run_id: str | None = None) -> str:
        """What happened to a run, or to each run there is, for people to read."""
        run_ids = [run_id] if run_id is not None else await all_run_ids(self.kernel, self._run_ids)
        return "\n\n".join([await timeline_of(self.kernel, one) for one in run_ids])

    async def _tick_until(
        self, condition: Callable[[], bool | Awaitable[bool]], *, awaited: str, max_ticks: int
    ) -> tuple[HarnessTickReport, ...]:
        reports: list[HarnessTickReport] = []
        while not await _holds(condition):
            if len(reports) >= max_ticks:
                raise await self._stalled(awaited, "it is not so", reports)
            reports.append(await self.tick())
            if reports[-1].idle and not await _holds(condition):
                raise await self._stalled(awaited, _IDLE, reports)
        return tuple(reports)

    async def _stalled(
        self, awaited: str, problem: str, reports: list[HarnessTickReport]
    ) -> HarnessStalledError:
        return HarnessStalledError(awaited, problem, len(reports), await self.timeline())

    async def _has_ended(self, run_id: str) -> bool:
        return await self.status(run_id) in TERMINAL_RUN_STATUSES

    async def _read(self, run_id: str) -> RunRecord:
        run = await self.kernel.runs.get(run_id)
        if run is None:
            raise RunNotFoundError(run_id)
        return run

    def _follow(self, run_id: str) -> None:
        if run_id not in self._run_ids:
            self._run_ids.append(run_id)


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    answer = condition()
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _checked_clock(clock: object) -> FakeClock:
    if not isinstance(clock, FakeClock):
        raise InvalidSettingError("clock", clock, "must be a FakeClock, which the harness can move")
    return clock


def _checked_services(services: object) -> KernelServices:
    if not isinstance(services, KernelServices):
        raise InvalidSettingError("services", services, "must be KernelServices")
    return services


def _checked_ticks(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidSettingError("max_ticks", number, "must be a whole number of at least 1")
    return number
