"""A kernel over in-memory adapters, whose time, faults and interleavings a test decides."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from stagewright import Kernel, RetryPolicy, Workflow, WorkflowRegistry, define_workflow
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    ExecuteJobResult,
    JobRef,
    PollSuspendedStages,
    SignalStep,
    SignalStepResult,
    TransitionRun,
)
from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.ports import Clock
from stagewright.records import DequeuedJob, RunRecord, StageRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright.testing import CollectingEventSink, FakeClock, assert_consistent


@dataclass
class _Cue:
    """What happens the n-th time a moment comes, counted from when the cue was given."""

    moment: str
    countdown: int
    error: BaseException | None = None
    times: int = 1
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def is_due(self, moment: str) -> bool:
        if self.moment not in ("*", moment) or self.times == 0:
            return False
        self.countdown -= 1
        if self.countdown > 0:
            return False
        self.times -= 1
        return True


class _Script:
    """Decides what happens at the moments of all databases of a test."""

    def __init__(self) -> None:
        self.moments: list[str] = []
        self.cues: list[_Cue] = []

    async def play(self, moment: str) -> None:
        self.moments.append(moment)
        for cue in [cue for cue in self.cues if cue.is_due(moment)]:
            if cue.error is not None:
                raise cue.error
            cue.reached.set()
            await cue.go.wait()
        if moment != "committed":
            await asyncio.sleep(0)


class _ScriptedDatabase(InMemoryDatabase):
    def __init__(self, clock: Clock, script: _Script) -> None:
        super().__init__(clock)
        self._script = script

    async def pause(self, moment: str) -> None:
        await self._script.play(moment)


class _NoJitter:
    def uniform(self) -> float:
        return 0.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sink() -> CollectingEventSink:
    return CollectingEventSink()


@pytest.fixture
def script() -> _Script:
    return _Script()


@pytest.fixture
def moments(script: _Script) -> list[str]:
    """What the databases were asked so far: the names of the adapters' methods, `begin`, `commit`, `committed`."""
    return script.moments


@pytest.fixture
def fail_at(script: _Script) -> Callable[..., None]:
    """`fail_at(moment, nth=1, times=1, error=…)`: raise there; `*` is any moment, `committed` a lost reply."""

    def give_cue(moment: str, *, nth: int = 1, times: int = 1, error: BaseException) -> None:
        script.cues.append(_Cue(moment, nth, error, times))

    return give_cue


@pytest.fixture
def forget_cues(script: _Script) -> Callable[[], None]:
    """Let everything go its way again."""
    return script.cues.clear


@pytest.fixture
def hold_at(script: _Script) -> Callable[..., tuple[asyncio.Event, asyncio.Event]]:
    """`reached, go = hold_at(moment, nth=1)`: whoever comes there sets `reached` and waits for `go`."""

    def give_cue(moment: str, *, nth: int = 1) -> tuple[asyncio.Event, asyncio.Event]:
        cue = _Cue(moment, nth)
        script.cues.append(cue)
        return cue.reached, cue.go

    return give_cue


@pytest.fixture
def database(clock: FakeClock, script: _Script) -> InMemoryDatabase:
    return _ScriptedDatabase(clock, script)


@pytest.fixture
def contents(database: InMemoryDatabase) -> Callable[[], dict[str, object]]:
    """Everything that is committed, table by table."""
    tables = (
        database.runs,
        database.stages,
        database.definitions,
        database.annotations,
        database.logs,
        database.outbox,
        database.idempotency_keys,
        database.jobs,
        database.steps,
        database.signals,
        database.blobs,
    )
    return lambda: {table.name: table.all() for table in tables}


@pytest.fixture
def persistence(database: InMemoryDatabase) -> InMemoryPersistence:
    return InMemoryPersistence(database)


@pytest.fixture
def blob_store(database: InMemoryDatabase) -> InMemoryBlobStore:
    return InMemoryBlobStore(database)


@pytest.fixture
def ledger(database: InMemoryDatabase) -> InMemoryStepLedger:
    return InMemoryStepLedger(database)


@pytest.fixture
def transport(
    request: pytest.FixtureRequest, clock: FakeClock, database: InMemoryDatabase, script: _Script
) -> InMemoryJobTransport:
    """In the persistence's database, or with the parameter `separate` in one of its own."""
    if getattr(request, "param", "enlisting") == "separate":
        return InMemoryJobTransport(_ScriptedDatabase(clock, script))
    return InMemoryJobTransport(database)


@pytest_asyncio.fixture
async def kernels(request: pytest.FixtureRequest, script: _Script) -> AsyncIterator[list[Kernel]]:
    """The kernels of a test; what they leave behind fits together, unless the test is marked `tampers`."""
    made: list[Kernel] = []
    yield made
    script.cues.clear()
    if request.node.get_closest_marker("tampers") is None:
        for kernel in {id(kernel.ports.persistence): kernel for kernel in made}.values():
            await assert_consistent(kernel)


@pytest.fixture
def make_kernel(
    kernels: list[Kernel],
    persistence: InMemoryPersistence,
    blob_store: InMemoryBlobStore,
    transport: InMemoryJobTransport,
    sink: CollectingEventSink,
    clock: FakeClock,
    ledger: InMemoryStepLedger,
) -> Callable[..., Kernel]:
    """`make_kernel(*workflows, **arguments)`: a kernel over the test's ports; arguments replace them."""

    def make(*workflows: Workflow, **arguments: Any) -> Kernel:
        given: dict[str, Any] = {
            "persistence": persistence,
            "blob_store": blob_store,
            "job_transport": transport,
            "event_sink": sink,
            "clock": clock,
            "step_ledger": ledger,
            "registry": WorkflowRegistry(workflows),
            "random": _NoJitter(),
        }
        kernel = Kernel(**(given | arguments))
        kernels.append(kernel)
        return kernel

    return make


@pytest.fixture
def flow_of() -> Callable[..., Workflow]:
    """`flow_of(body, …, id="flow", **options)`: a workflow of one stage after the other, `s1`, `s2`, …."""

    def build(*bodies: Callable[..., Any], id: str = "flow", input: object = Any, **options: Any) -> Workflow:
        types: dict[str, Any] = {"input": Any, "output": Any}
        builder = define_workflow(id, input=input)
        for number, body in enumerate(bodies, start=1):
            builder = builder.stage(f"s{number}", body, **(types | options))
        return builder.build()

    return build


@pytest.fixture
def start_run() -> Callable[..., Awaitable[str]]:
    """`await start_run(kernel, input=None, **fields)`: create a run and claim it."""

    async def start(kernel: Kernel, input: object = None, **fields: Any) -> str:
        fields.setdefault("workflow_id", "flow")
        created = await kernel.dispatch(CreateRun(input=input, **fields))
        await kernel.dispatch(ClaimPendingRuns("claimer"))
        return created.run_id

    return start


@pytest.fixture
def take_job() -> Callable[..., Awaitable[DequeuedJob]]:
    """`await take_job(kernel)`: claim the one job that is due."""

    async def take(kernel: Kernel, worker_id: str = "worker") -> DequeuedJob:
        (job,) = (await kernel.dispatch(ClaimJobs(worker_id))).jobs
        return job

    return take


@pytest.fixture
def execute() -> Callable[..., Coroutine[Any, Any, ExecuteJobResult]]:
    """`await execute(kernel, job, **fields)`: execute a delivered job, and move the run on where that is left over."""

    async def run(kernel: Kernel, job: DequeuedJob, **fields: Any) -> ExecuteJobResult:
        fields.setdefault("job", JobRef(job.job_id, job.fence))
        command = ExecuteJob(run_id=job.run_id, workflow_id=job.workflow_id, stage_id=job.stage_id, **fields)
        result = await kernel.dispatch(command)
        if not result.ghost and not result.will_retry:
            await kernel.dispatch(TransitionRun(job.run_id))
        return result

    return run


@pytest.fixture
def finish(
    clock: FakeClock, execute: Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
) -> Callable[[Kernel, str], Awaitable[RunRecord]]:
    """`await finish(kernel, run_id)`: execute what is due, moving the clock on when nothing is, until the run ends."""

    async def work_off(kernel: Kernel, run_id: str) -> RunRecord:
        for _ in range(100):
            run = await kernel.runs.get(run_id)
            assert run is not None
            if run.status in TERMINAL_RUN_STATUSES:
                return run
            await kernel.dispatch(ClaimPendingRuns("claimer"))
            jobs: Sequence[DequeuedJob] = (await kernel.dispatch(ClaimJobs("worker", limit=10))).jobs
            if not jobs:
                await kernel.dispatch(TransitionRun(run_id))
                clock.advance("1m")
            await asyncio.gather(*(execute(kernel, job) for job in jobs))
        raise AssertionError(f"run {run_id} doesn't end")

    return work_off


@pytest.fixture
def resume(clock: FakeClock) -> Callable[[Kernel, str], Coroutine[Any, Any, None]]:
    """`await resume(kernel, run_id)`: move the clock to where its suspended stages are due, and hand them back."""

    async def go_on(kernel: Kernel, run_id: str) -> None:
        for stage in await kernel.runs.stages(run_id):
            if stage.status is Status.SUSPENDED and stage.next_poll_at is not None:
                clock.set(max(clock.now(), stage.next_poll_at))
        await kernel.dispatch(PollSuspendedStages())

    return go_on


@pytest.fixture
def lose_worker(transport: InMemoryJobTransport, clock: FakeClock) -> Callable[[], Coroutine[Any, Any, None]]:
    """`await lose_worker()`: nobody has renewed the leases of what is executed, so it is delivered again."""

    async def lose() -> None:
        clock.advance("10m")
        await transport.release_stale(timedelta(minutes=5))

    return lose


@pytest.fixture
def run_steps(
    make_kernel: Callable[..., Kernel],
    flow_of: Callable[..., Workflow],
    start_run: Callable[..., Awaitable[str]],
    execute: Callable[..., Coroutine[Any, Any, ExecuteJobResult]],
    resume: Callable[[Kernel, str], Coroutine[Any, Any, None]],
) -> Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]:
    """`run, results = await run_steps(body, …, ports={}, **options)`: work a run off, resuming it when it is due.

    The results are those of its executions, in order.
    """

    async def work(
        *bodies: Callable[..., Any], ports: dict[str, Any] | None = None, **options: Any
    ) -> tuple[RunRecord, list[ExecuteJobResult]]:
        options.setdefault("retry", RetryPolicy(3, delay=0))
        kernel = make_kernel(flow_of(*bodies, **options), **(ports or {}))
        run_id = await start_run(kernel)
        results: list[ExecuteJobResult] = []
        for _ in range(100):
            run = await kernel.runs.get(run_id)
            assert run is not None
            if run.status in TERMINAL_RUN_STATUSES:
                return run, results
            jobs = (await kernel.dispatch(ClaimJobs("worker", limit=10))).jobs
            results += [await execute(kernel, job) for job in jobs]
            await resume(kernel, run_id)
        raise AssertionError(f"run {run_id} doesn't end: {results[-3:]}")

    return work


@pytest.fixture
def signal() -> Callable[..., Coroutine[Any, Any, SignalStepResult]]:
    """`await signal(kernel, run_id, payload=None, step_id="go", stage_id="s1")`: signal a step."""

    async def send(
        kernel: Kernel, run_id: str, payload: Any = None, *, step_id: str = "go", stage_id: str = "s1"
    ) -> SignalStepResult:
        return await kernel.dispatch(SignalStep(run_id, stage_id, step_id, payload=payload))

    return send


@pytest.fixture
def ledger_elsewhere(clock: FakeClock, script: _Script) -> InMemoryStepLedger:
    """A ledger in a database of its own, which can take part in no transaction of the persistence."""
    return InMemoryStepLedger(_ScriptedDatabase(clock, script))


@pytest.fixture
def statuses() -> Callable[[Kernel, str], Awaitable[dict[str, Status]]]:
    """`await statuses(kernel, run_id)`: the status of each stage, by id."""

    async def read(kernel: Kernel, run_id: str) -> dict[str, Status]:
        stages: list[StageRecord] = await kernel.runs.stages(run_id)
        return {stage.stage_id: stage.status for stage in stages}

    return read


@pytest.fixture
def told() -> Callable[[Kernel, str], Awaitable[list[str]]]:
    """`await told(kernel, run_id)`: the types of a run's committed events, in order."""

    async def read(kernel: Kernel, run_id: str) -> list[str]:
        return [event.type for event in await kernel.runs.events(run_id)]

    return read


@pytest.fixture
def once(
    make_kernel: Callable[..., Kernel],
    flow_of: Callable[..., Workflow],
    start_run: Callable[..., Awaitable[str]],
    take_job: Callable[..., Awaitable[DequeuedJob]],
    execute: Callable[..., Coroutine[Any, Any, ExecuteJobResult]],
) -> Callable[..., Coroutine[Any, Any, ExecuteJobResult]]:
    """`await once(body, **options)`: one execution of a run's stage."""

    async def run(body: Callable[..., Any], **options: Any) -> ExecuteJobResult:
        kernel = make_kernel(flow_of(body, **options))
        await start_run(kernel)
        return await execute(kernel, await take_job(kernel))

    return run


@pytest.fixture
def hours(clock: FakeClock) -> Callable[[float], datetime]:
    """`hours(2)`: the moment in two hours from the beginning."""
    start = clock.now()
    return lambda number: start + timedelta(hours=number)
