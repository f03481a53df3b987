"""What one simulation is made of, as data."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from stagewright_simulation.faults import Fault

__all__ = ["Action", "ClockSpec", "Item", "Scenario", "StageSpec", "StepSpec", "Topology", "WorkflowSpec"]

ActionKind: TypeAlias = Literal[
    "create",
    "cancel",
    "redrive",
    "redrive-start",
    "redrive-stage",
    "redrive-latest",
    "signal",
    "purge",
    "replay",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """A durable step.

    Attributes:
        id: Its id.
        kind: What it is.
        seconds: How long its function takes, or how long it sleeps, or until when it gives up waiting.
        retries: How often it may be tried again.
        fails: How often its function raises before it returns; of a wait, how often it isn't ready.
        is_fatal: Whether it raises what nothing helps against.
        is_big: Whether its result is too large to be kept inline.
        lease: Its own lease in seconds, or None.
        on_reclaim: What becomes of it when its worker is lost.
    """

    id: str
    kind: Literal["run", "wait", "signal", "sleep"]
    seconds: float = 1.0
    retries: int = 0
    fails: int = 0
    is_fatal: bool = False
    is_big: bool = False
    lease: float | None = None
    on_reclaim: Literal["rerun", "fail"] = "rerun"


Item: TypeAlias = tuple[StepSpec, ...]
"""Steps that a body makes side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """A stage.

    Attributes:
        id: Its id.
        items: What its body does.
        fails: How often its body raises before it returns; of a batch, how often it isn't ready.
        is_fatal: Whether it raises what nothing helps against.
        is_big: Whether its output is too large to be kept inline.
        max_attempts: How often it may fail.
        max_worker_losses: How often its worker may be lost.
        delay: The pause before another attempt, in seconds.
        timeout: Of one invocation, in seconds, or None.
        is_batch: Whether its work goes on elsewhere, and is asked about.
    """

    id: str
    items: tuple[Item, ...] = ()
    fails: int = 0
    is_fatal: bool = False
    is_big: bool = False
    max_attempts: int = 3
    max_worker_losses: int = 3
    delay: float = 2.0
    timeout: float | None = None
    is_batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSpec:
    """A workflow: groups of stages."""

    id: str
    groups: tuple[tuple[StageSpec, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that the operator does.

    Attributes:
        at: When, in seconds.
        kind: What.
        run: To which run, by the number of its creation.
        workflow: Of a creation: which workflow.
        stage: Of a signal or a redrive: the stage.
        step: Of a signal: the step.
        is_keyed: Of a creation or a redrive: whether it carries an idempotency key.
        is_big: Whether the input or the payload is too large to be kept inline.
        priority: Of a creation.
        operator: Who does it.
    """

    at: float
    kind: ActionKind
    run: int = 0
    workflow: str = ""
    stage: str = ""
    step: str = ""
    is_keyed: bool = True
    is_big: bool = False
    priority: int = 0
    operator: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSpec:
    """How far a clock is off, in seconds, and by how much it goes wrong each second."""

    offset: float = 0.0
    drift: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Who there is, and which stores share a database.

    Attributes:
        workers: How many workers.
        maintainers: How many processes look after runs.
        flushers: How many only deliver events.
        operators: How many act on runs at once; what one creates the others know.
        concurrency: How many bodies a worker runs at a time.
        jobs_apart: Whether jobs are kept in a database of their own.
        steps_apart: Whether steps are.
        is_deaf: Whether workers hear nothing of notifications.
        goes_on: How often a worker takes what follows a stage at once, and of runs that it sets going as much as it has
            places for, from 0 to 1.
    """

    workers: int = 2
    maintainers: int = 1
    flushers: int = 1
    operators: int = 1
    concurrency: int = 2
    jobs_apart: bool = False
    steps_apart: bool = False
    is_deaf: bool = False
    goes_on: float = 0.0

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of all processes."""
        counts = (
            ("worker", self.workers),
            ("upkeep", self.maintainers),
            ("flusher", self.flushers),
            ("operator", self.operators),
        )
        return tuple(f"{name}-{number}" for name, count in counts for number in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One simulation.

    Attributes:
        seed: The number that it was made of.
        chaos: How long things go wrong, in seconds.
        deploy_at: When new versions of the workflows come, or None.
        blackout: Whether everything stops at once at the end of the chaos, to be looked at.
        slowness: How many seconds a call takes at most while things go wrong; 0 is hardly any, mostly.
        absolute_timeout: After how many seconds a job fails whatever its worker says; 0 is never.
    """

    seed: int
    topology: Topology
    workflows: tuple[WorkflowSpec, ...]
    newer: tuple[WorkflowSpec, ...] = ()
    actions: tuple[Action, ...] = ()
    faults: tuple[Fault, ...] = ()
    clocks: dict[str, ClockSpec] = field(default_factory=dict)
    chaos: float = 300.0
    deploy_at: float | None = None
    blackout: bool = False
    absolute_timeout: float = 0.0
    slowness: float = 0.0

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong at all."""
        return not self.faults and not self.blackout and not self.slowness
