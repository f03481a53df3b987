"""What is compared with what: rows of equivalent work, and who does it in which way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = ["Entry", "Place", "Row", "Sizes", "rows_of"]

Place = Literal["postgresql", "sqlite", "redis", "none"]

_OURS = ("Stagewright", "floor")
_OWN = "benchmarks.own_turns"
_DBOS = "benchmarks.peers.dbos_turns"
_CELERY = "benchmarks.peers.celery_turns"
_DRAMATIQ = "benchmarks.peers.dramatiq_turns"
_IDLE = "benchmarks.peers.idle_turns"
_RESTATE = "benchmarks.peers.restate_turns"


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender in one way of working.

    Attributes:
        name: What the tables call it, unique in its row.
        call: `module:function`, which takes its turn.
        place: What it works on.
        size: How many of what the row counts.
        options: What tells it from others of the same function.
    """

    name: str
    call: str
    place: Place
    size: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """Contenders that do equivalent work.

    Attributes:
        key: What to call it on the command line.
        title: What is done.
        unit: Of what is measured; those of time and memory are better the less they are.
        entries: Who does it; the first one is what the others are held against.
        each: What processor time is told for each of, and how many of them one of what is counted has.
        most_rounds: After so many it has enough.
    """

    key: str
    title: str
    unit: str
    entries: Sequence[Entry]
    each: tuple[str, int] = ("one", 1)
    most_rounds: int | None = None

    @property
    def is_less_better(self) -> bool:
        return not self.unit.endswith("/s")

    def without_peers(self) -> "Row":
        """Stagewright and the floor alone."""
        return replace(self, entries=[one for one in self.entries if one.name.startswith(_OURS)])


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a turn is, at most: with `seconds`, less is done where less fits into them.

    Attributes:
        runs: Three-stage runs on PostgreSQL; of those that take long, a part.
        slow_runs: Three-stage runs, or workflows, of those that do fewer than a hundred a second, and on SQLite.
        steps: Steps of one stage.
        fan_outs: Runs, or workflows, of twenty stages or steps side by side.
        backlog: Single-stage runs, or jobs, that wait.
        slow_backlog: The same, where each takes long.
        idle: Runs created one after the other.
        imports: How often a package is imported.
        steady_rounds: How often that is measured, at most, which is the same each time.
        slots: How many bodies run at a time.
        seconds: What the work of a turn may take; without it, a turn does all of it.
    """

    runs: int = 600
    slow_runs: int = 150
    steps: int = 1_000
    fan_outs: int = 60
    backlog: int = 10_000
    slow_backlog: int = 1_000
    idle: int = 100
    imports: int = 5
    steady_rounds: int = 2
    slots: int = 16
    seconds: float | None = None


def rows_of(sizes: Sizes) -> list[Row]:
    """All rows."""
    few, most = sizes.steady_rounds, "" if sizes.seconds is None else "up to "
    return [
        Row("three", "three-stage runs, create to COMPLETED", "runs/s", _three(sizes), ("stage", 3)),
        Row("steps", f"one stage of {most}{sizes.steps:,} steps", "steps/s", _steps(sizes)),
        Row("fan-out", "runs of 20 stages, or steps, side by side", "stages/s", _fan_out(sizes)),
        Row("backlog", "single-stage runs drained from a backlog", "runs/s", _backlog(sizes)),
        Row("first-line", "idle: CreateRun to the first line in another process", "ms", _first_line(sizes)),
        Row("idle-three", "idle: three stages, create to COMPLETED", "ms", _idle_three(sizes)),
        Row("memory", "resident memory of an idle worker", "MB", _memory(), most_rounds=few),
        Row("import", "import, compiled", "ms", _imports(sizes), most_rounds=few),
    ]


def _three(sizes: Sizes) -> list[Entry]:
    runs, slow = sizes.runs, sizes.slow_runs
    return [
        Entry("Stagewright, worker", f"{_OWN}:hosted_three_stages", "postgresql", runs),
        Entry("Stagewright, bare loops", f"{_OWN}:three_stages", "postgresql", runs),
        Entry("floor", f"{_OWN}:floor", "postgresql", runs),
        Entry("Stagewright, bare loops in batches", f"{_OWN}:three_stages", "postgresql", runs, _BATCHED),
        Entry("floor in batches", f"{_OWN}:floor", "postgresql", runs, _BATCHED),
        Entry("DBOS, async", f"{_DBOS}:three_steps_async", "postgresql", slow),
        Entry("DBOS, sync", f"{_DBOS}:three_steps_sync", "postgresql", slow),
        Entry("DBOS, by its queue", f"{_DBOS}:three_steps_queued", "postgresql", slow),
        Entry("Stagewright, worker on SQLite", f"{_OWN}:hosted_three_stages", "sqlite", slow),
        Entry("DBOS, async on SQLite", f"{_DBOS}:three_steps_async", "sqlite", slow),
        Entry("DBOS, sync on SQLite", f"{_DBOS}:three_steps_sync", "sqlite", slow),
        Entry("Restate", f"{_RESTATE}:three_steps", "none", runs),
        Entry("Celery, chain of three", f"{_CELERY}:three_tasks", "redis", runs),
        Entry("Dramatiq, pipeline of three", f"{_DRAMATIQ}:three_tasks", "redis", runs),
    ]


_BATCHED: Mapping[str, Any] = {"batched": True}


def _steps(sizes: Sizes) -> list[Entry]:
    return [
        Entry("Stagewright", f"{_OWN}:steps", "postgresql", sizes.steps),
        Entry("floor", f"{_OWN}:steps_floor", "postgresql", sizes.steps),
        Entry("DBOS, async", f"{_DBOS}:steps", "postgresql", sizes.steps, {"way": "async"}),
        Entry("DBOS, sync", f"{_DBOS}:steps", "postgresql", sizes.steps, {"way": "sync"}),
        Entry("Restate", f"{_RESTATE}:steps", "none", sizes.steps),
        Entry("Stagewright on SQLite", f"{_OWN}:steps", "sqlite", sizes.steps),
        Entry("DBOS, async on SQLite", f"{_DBOS}:steps", "sqlite", sizes.steps, {"way": "async"}),
        Entry("DBOS, sync on SQLite", f"{_DBOS}:steps", "sqlite", sizes.steps, {"way": "sync"}),
    ]


def _fan_out(sizes: Sizes) -> list[Entry]:
    ours, theirs = f"{_OWN}:fan_out", f"{_DBOS}:fan_out"
    return [
        Entry("Stagewright, worker", ours, "postgresql", sizes.fan_outs),
        Entry("DBOS, async", theirs, "postgresql", sizes.fan_outs),
        Entry("Stagewright, worker on SQLite", ours, "sqlite", sizes.fan_outs),
        Entry("DBOS, async on SQLite", theirs, "sqlite", sizes.fan_outs),
    ]


def _backlog(sizes: Sizes) -> list[Entry]:
    jobs, queuer = sizes.backlog, "benchmarks.peers.pgqueuer_turns:backlog"
    return [
        Entry("Stagewright, worker", f"{_OWN}:backlog", "postgresql", jobs),
        Entry("Procrastinate", "benchmarks.peers.procrastinate_turns:backlog", "postgresql", jobs),
        Entry("PgQueuer, by 10", queuer, "postgresql", jobs, {"batch": 10}),
        Entry("PgQueuer, by 100", queuer, "postgresql", jobs, {"batch": 100}),
        Entry("DBOS, queue", f"{_DBOS}:backlog", "postgresql", sizes.slow_backlog),
        Entry("Celery", f"{_CELERY}:backlog", "redis", jobs),
        Entry("Dramatiq", f"{_DRAMATIQ}:backlog", "redis", jobs),
    ]


def _first_line(sizes: Sizes) -> list[Entry]:
    return [
        Entry("Stagewright", f"{_OWN}:idle_first_line", "postgresql", sizes.idle),
        Entry("Stagewright on SQLite", f"{_OWN}:idle_first_line", "sqlite", sizes.idle),
        Entry("Procrastinate", f"{_IDLE}:first_line", "postgresql", sizes.idle, {"peer": "procrastinate"}),
        Entry("PgQueuer", f"{_IDLE}:first_line", "postgresql", sizes.idle, {"peer": "pgqueuer"}),
        Entry("DBOS, queue", f"{_IDLE}:first_line", "postgresql", sizes.idle, {"peer": "dbos"}),
    ]


def _idle_three(sizes: Sizes) -> list[Entry]:
    return [
        Entry("Stagewright", f"{_OWN}:idle_three_stages", "postgresql", sizes.idle),
        Entry("Stagewright on SQLite", f"{_OWN}:idle_three_stages", "sqlite", sizes.idle),
    ]


def _memory() -> list[Entry]:
    return [Entry("Stagewright", f"{_OWN}:resident", "postgresql", 1)]


def _imports(sizes: Sizes) -> list[Entry]:
    names = {
        "Stagewright": "stagewright",
        "DBOS": "dbos",
        "Procrastinate": "procrastinate",
        "PgQueuer": "pgqueuer",
        "Celery": "celery.app",
        "Dramatiq": "dramatiq",
    }
    call = "benchmarks.import_turns:import_time"
    package = {"of": "stagewright", "alone": True}
    return [
        *(Entry(name, call, "none", sizes.imports, {"of": module}) for name, module in names.items()),
        Entry("Stagewright, package", call, "none", sizes.imports, package),
    ]
