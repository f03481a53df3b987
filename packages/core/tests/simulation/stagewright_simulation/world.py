"""Everything of one simulation, put together."""

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Final

from stagewright import Kernel, Workflow, WorkflowRegistry
from stagewright.errors import StagewrightError
from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.ports import RunReader
from stagewright.records import Page, StepRecord
from stagewright.status import Status
from stagewright_simulation.bodies import build_workflow
from stagewright_simulation.clocks import SimRandom, SkewedClock, TrueClock
from stagewright_simulation.database import SimDatabase
from stagewright_simulation.faults import BUSY, DeliveryFault, PortFault, TimedFault
from stagewright_simulation.history import History
from stagewright_simulation.hosts import deliver, look_after, work
from stagewright_simulation.loop import CURRENT, SimLoop
from stagewright_simulation.operators import bury, operate
from stagewright_simulation.role import Role
from stagewright_simulation.scenario import Action, ClockSpec, Scenario
from stagewright_simulation.sink import SimSink
from stagewright_simulation.windows import Windows

__all__ = ["World"]

_PATIENCE: Final = 1_500_000
_SPILL: Final = 400
_MAIN_OF: Final[dict[str, Callable[[Role], Awaitable[None]]]] = {
    "worker": work,
    "upkeep": look_after,
    "flusher": deliver,
    "operator": operate,
}


class _Reader(InMemoryPersistence):
    """Reads steps where they are, also in a database of their own."""

    def __init__(self, database: SimDatabase, ledger: InMemoryStepLedger) -> None:
        super().__init__(database)
        self._ledger = ledger

    async def list_steps(self, run_id: str, *, limit: int | None, cursor: str | None) -> Page[StepRecord]:
        """All of them at once, as the checks of the end ask for."""
        stages = await self.list_stages(run_id)
        return Page(items=tuple([step for stage in stages for step in await self._ledger.list(stage.id)]))


class World:
    """Stores, processes and what is between them.

    Attributes:
        scenario: What it is made of.
        is_calm: Whether nothing goes wrong any more.
        is_over: Whether nobody is to come back.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.is_calm = False
        self.is_over = False
        self.loop = SimLoop(random.Random(f"turns {scenario.seed}"), patience=_PATIENCE)
        self.history = History(self.loop.time)
        self.windows = Windows(self.loop.time)
        self.committed_events: dict[str, int] = {}
        self._make_stores()
        self.sink = SimSink(self.history, self.windows, self._reach, self.committed_events)
        versions = (scenario.workflows, scenario.newer) if scenario.newer else (scenario.workflows,)
        self._registries = [
            WorkflowRegistry(build_workflow(spec, self.history, self._execution_began) for spec in specs)
            for specs in versions
        ]
        self.version_of_operator = 0
        self.roles = {name: self._make_role(name) for name in scenario.topology.roles}

    @property
    def clocks_are_right(self) -> bool:
        """Whether all machines' clocks show the true time, always."""
        jumps = (isinstance(one, TimedFault) and one.kind == "jump" for one in self.scenario.faults)
        return not self.scenario.clocks and not any(jumps)

    @property
    def blobs_are_there(self) -> bool:
        """Whether the blob store never fails anybody."""
        return not any(
            (isinstance(one, TimedFault) and one.kind == "blobs-away")
            or (isinstance(one, PortFault) and (one.moment == "*" or one.moment.startswith("blob_store")))
            for one in self.scenario.faults
        )

    # Stores and kernels

    def _make_stores(self) -> None:
        topology, clock = self.scenario.topology, TrueClock(self.loop)
        make = partial(SimDatabase, clock=clock, reach=self._reach)
        self.main = make("rows")
        self.blob_database = make("blobs")
        self.job_database = make("queue") if topology.jobs_apart else self.main
        self.step_database = make("steps") if topology.steps_apart else self.main
        named = {
            one.name: one for one in (self.main, self.blob_database, self.job_database, self.step_database)
        }
        self.databases = tuple(named.values())
        self.persistence = InMemoryPersistence(self.main)
        self.transport = InMemoryJobTransport(self.job_database)
        self.ledger = InMemoryStepLedger(self.step_database)
        self.blobs = InMemoryBlobStore(self.blob_database)

    def make_kernel(self, role: Role, version: int, *, run_reader: RunReader | None = None) -> Kernel:
        """A kernel of a process."""
        return Kernel(
            persistence=InMemoryPersistence(self.main),
            blob_store=self.blobs,
            job_transport=self.transport,
            event_sink=self.sink,
            clock=role.clock,
            registry=self._registries[min(version, len(self._registries) - 1)],
            step_ledger=self.ledger,
            ids=role.ids,
            random=SimRandom(role.rng),
            spill_threshold_bytes=_SPILL,
            run_reader=run_reader,
        )

    def observer(self) -> Kernel:
        """A kernel outside of all processes, whose clock is true and whose calls always succeed."""
        return self.make_kernel(self._make_role("observer"), 1, run_reader=_Reader(self.main, self.ledger))

    def workflow(self, workflow_id: str, version: str | None) -> Workflow | None:
        """The workflow in that version."""
        for registry in self._registries:
            workflow = registry.get(workflow_id)
            if workflow is not None and version in (None, workflow.definition_version):
                return workflow
        return None

    # Processes

    def undertaker(self, cut_off_at: int) -> Role:
        """A process that purges everything there is, and crashes at one of its calls."""
        crash = PortFault(role="undertaker", moment="*", nth=cut_off_at, kind="crash", length=5)
        clock = SkewedClock(self.loop, offset=0, drift=0)
        return Role(self, "undertaker", bury, clock=clock, faults=[crash], deliveries=[])

    def _make_role(self, name: str) -> Role:
        scenario, spec = self.scenario, self.scenario.clocks.get(name, ClockSpec())
        return Role(
            self,
            name,
            _MAIN_OF.get(name.partition("-")[0], work),
            clock=SkewedClock(self.loop, offset=spec.offset, drift=spec.drift),
            faults=[one for one in scenario.faults if isinstance(one, PortFault) and one.role == name],
            deliveries=[
                one for one in scenario.faults if isinstance(one, DeliveryFault) and one.role == name
            ],
        )

    def actions_of(self, role: Role) -> list[Action]:
        """What an operator does."""
        number = int(role.name.partition("-")[2])
        return [action for action in self.scenario.actions if action.operator == number]

    @property
    def are_actions_done(self) -> bool:
        """Whether the operators have nothing left to do."""
        operators = [role for role in self.roles.values() if role.name.startswith("operator")]
        return all(role.progress == len(self.actions_of(role)) for role in operators)

    def begin(self) -> None:
        """Start everybody, and set the times of what will happen."""
        for role in self.roles.values():
            role.start()
        for fault in self.scenario.faults:
            if isinstance(fault, TimedFault):
                self.loop.call_at(fault.at, self._befall, fault, context=Context())
        if self.scenario.deploy_at is not None:
            self.loop.call_at(self.scenario.deploy_at, self._deploy, context=Context())

    def _befall(self, fault: TimedFault, tries: int = 20) -> None:
        if self.is_calm:
            return
        if fault.role == BUSY:
            worker = self._busy_worker()
            if worker is not None:
                self._befall(replace(fault, role=worker))
            elif tries:
                self.loop.call_later(1.0, self._befall, fault, tries - 1, context=Context())
            return
        if fault.kind in ("cut-off", "blobs-away", "sink-refuses", "sink-crawls", "sink-forgets"):
            self.history.tell(fault.role or "outside", f"{fault.kind} for {fault.length} s")
            self.windows.open(fault.kind, fault.role, length=fault.length, amount=fault.amount)
            return
        role = self.roles[fault.role]
        match fault.kind:
            case "crash":
                role.die(fault.length)
            case "freeze":
                role.freeze(fault.length)
            case "jump":
                role.clock.offset += fault.amount
                self.history.tell(role.name, f"has its clock set by {fault.amount} s")
            case _:
                self.loop.create_task(role.restart(), context=Context())

    def _busy_worker(self) -> str | None:
        """A worker that has a job and gets turns."""
        rows = sorted(
            self.job_database.jobs.where("status", Status.RUNNING).values(), key=lambda row: row.position
        )
        names = [(row.record.worker_id or "").partition(".")[0] for row in rows]
        now = self.loop.time()
        for name in names:
            role = self.roles.get(name)
            if role is not None and role.actor is not None and role.actor.frozen_until <= now:
                return name
        return None

    def _deploy(self) -> None:
        """Half of the processes come to serve the new versions, one after the other."""
        self.version_of_operator = 1
        for number, role in enumerate(self.roles.values()):
            if not role.name.startswith("operator") and role.rng.random() < 0.6:
                role.version = 1
                self.loop.call_later(number * 2.0, self._restart, role, context=Context())

    def _restart(self, role: Role) -> None:
        self.loop.create_task(role.restart(), context=Context())

    def calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self.is_calm = True
        self.history.tell("outside", "nothing goes wrong from now on")
        self.windows.close_all()
        for role in self.roles.values():
            role.plan.clear()
            role.deliveries.clear()
            role.thaw()

    def serve_all_versions(self) -> None:
        """Have everything served by somebody: whoever is missing comes back, and both versions are there."""
        if self.scenario.newer:
            for kind in ("worker", "upkeep"):
                self._share_versions(kind)
        for role in self.roles.values():
            role.start()

    def _share_versions(self, kind: str) -> None:
        names = [name for name in self.roles if name.startswith(kind)]
        if len(names) < 2:
            name = f"{kind}-{len(names)}"
            self.roles[name] = self._make_role(name)
            names.append(name)
        for number, name in enumerate(names):
            role = self.roles[name]
            if role.version != number % 2:
                role.version = number % 2
                self._restart(role)

    # What is between them

    async def _reach(self, store: str, moment: str) -> None:
        actor = CURRENT.get()
        if actor is not None and isinstance(actor.role, Role):
            await actor.role.reach(store, moment)

    def _execution_began(self, record_id: str, step_id: str, attempt: int, token: str) -> None:
        """The function of a step begins: nobody begins one anew that has its outcome already."""
        row = self.step_database.steps.get((record_id, step_id))
        if self.history.next("execution", record_id, step_id, str(attempt)) > 1:
            self.history.violate(
                "one-execution-an-attempt",
                f"execution {attempt} of step {step_id} of {record_id} is made twice",
            )
        self.history.tell("step", f"{token} begins, execution {attempt} in {record_id}")
        if row is not None and row.status == "completed" and attempt > row.attempt:
            self.history.violate(
                "no-execution-after-outcome",
                f"execution {attempt} of step {step_id} begins after its outcome {row}",
            )

    def note_error(self, who: str, error: BaseException, doing: str) -> None:
        """A command failed. Stores and networks may; anything else is a surprise."""
        self.history.tell(who, f"{doing} failed: {type(error).__name__}: {error}")
        if not isinstance(error, StagewrightError | ConnectionError):
            self.history.violate("no-surprise", f"{who}, {doing}: {type(error).__name__}: {error}")
        elif self.is_calm and not isinstance(error, StagewrightError):
            self.history.violate(
                "no-surprise", f"{who}, {doing}, in calm times: {type(error).__name__}: {error}"
            )

    @contextmanager
    def closing(self) -> Iterator["World"]:
        """Leave nothing behind."""
        try:
            yield self
        finally:
            self.is_over = True
            self.loop.end()
