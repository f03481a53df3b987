"""A scenario out of a number."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from stagewright_simulation.faults import BUSY, DeliveryFault, Fault, PortFault, TimedFault
from stagewright_simulation.scenario import (
    Action,
    ClockSpec,
    Item,
    Scenario,
    StageSpec,
    StepSpec,
    Topology,
    WorkflowSpec,
)

__all__ = ["MOMENTS", "generate"]

T = TypeVar("T")

_WORKER_MOMENTS: Final = (
    "begin", "commit", "committed", "dequeue", "load_runs", "update_stage", "append_outbox_events",
    "append_annotations", "append_logs", "enqueue_parallel", "complete", "suspend", "fail", "touch", "wait_for_work",
    "step_ledger.claim", "step_ledger.compare_and_set", "step_ledger.list", "step_ledger.get",
    "blob_store.put", "blob_store.get", "get_stage", "get_run_status", "update_run", "get_signal",
    "delete_signal", "lock_runs", "get_jobs_by_run", "create_stage", "defer", "enqueue_delivered",
    "claim_pending_runs",
)  # fmt: skip
_UPKEEP_MOMENTS: Final = (
    "begin", "commit", "committed", "claim_pending_runs", "release_stale", "expire_runaway", "get_suspended_stages",
    "get_owed_stages", "resume", "update_stage", "create_stage", "enqueue_parallel", "load_runs", "lock_runs",
    "get_stuck_runs", "get_jobs_by_run", "append_outbox_events", "savepoint", "fail", "suspend", "complete",
    "blob_store.get", "blob_store.put", "count_runs_by_definition_version",
)  # fmt: skip
_FLUSHER_MOMENTS: Final = (
    "claim_unpublished_outbox_events", "renew_outbox_claim", "mark_outbox_events_published", "release_outbox_events",
    "record_outbox_failure", "move_outbox_event_to_dlq", "sink.emit", "sink.emitted", "committed",
)  # fmt: skip
_OPERATOR_MOMENTS: Final = (
    "begin", "commit", "committed", "create_run", "load_runs", "acquire_idempotency_key", "complete_idempotency_key",
    "insert_signal_if_absent", "step_ledger.get", "step_ledger.compare_and_set", "step_ledger.list",
    "step_ledger.clear_except", "delete_by_run_and_stages", "cancel_by_run", "delete_stage", "put_tombstone",
    "delete_run", "remove_tombstone", "blob_store.list", "blob_store.delete_many", "blob_store.put", "resume",
    "enqueue_parallel", "append_outbox_events", "insert_definition_if_absent", "nudge_stage", "update_stage",
    "update_run",
)  # fmt: skip

MOMENTS: Final = {
    "worker": _WORKER_MOMENTS,
    "upkeep": _UPKEEP_MOMENTS,
    "flusher": _FLUSHER_MOMENTS,
    "operator": _OPERATOR_MOMENTS,
}
"""At which calls of which processes something may happen, besides at any."""


def generate(seed: int) -> Scenario:
    """The scenario of a seed; the same on every machine."""
    return _Generator(random.Random(f"scenario {seed}"), seed).scenario()


class _Generator:
    def __init__(self, rng: random.Random, seed: int) -> None:
        self._rng = rng
        self._seed = seed

    def scenario(self) -> Scenario:
        rng = self._rng
        topology = self._topology()
        chaos = round(rng.uniform(30, 110), 1)
        workflows = tuple(self._workflow(f"flow-{letter}") for letter in "ab"[: self._int(1, 2)])
        deploys = self._maybe(0.25)
        newer = tuple(self._newer(workflow) for workflow in workflows) if deploys else ()
        calm = self._maybe(0.08)
        scenario = Scenario(
            seed=self._seed,
            topology=topology,
            workflows=workflows,
            newer=newer,
            clocks={} if calm else self._clocks(topology),
            chaos=chaos,
            deploy_at=round(rng.uniform(5, chaos), 1) if deploys else None,
            blackout=self._maybe(0.4),
            absolute_timeout=rng.choice((0.0, 0.0, 90.0, 300.0)),
        )
        scenario = replace(scenario, actions=self._actions(scenario))
        if calm:
            return scenario
        faults = self._faults(scenario)
        # Where calls take long, what is done at the same time meets in the middle of transactions.
        slowness = self._pick((0.3, 1.0, 2.0)) if self._maybe(0.25) else 0.0
        return replace(scenario, faults=faults, slowness=slowness)

    def _topology(self) -> Topology:
        return Topology(
            workers=self._pick((1, 2, 2, 3)),
            maintainers=self._int(1, 2),
            flushers=self._int(0, 2),
            operators=self._int(1, 2),
            concurrency=self._int(1, 3),
            jobs_apart=self._maybe(0.35),
            steps_apart=self._maybe(0.25),
            is_deaf=self._maybe(0.2),
            goes_on=self._pick((0.0, 0.5, 0.9, 1.0)),
        )

    # Workflows

    def _workflow(self, id: str) -> WorkflowSpec:
        groups = []
        number = 0
        for _ in range(self._pick((1, 2, 2, 3))):
            group = []
            for _ in range(self._pick((1, 1, 2, 3))):
                number += 1
                group.append(self._stage(f"s{number}"))
            groups.append(tuple(group))
        return WorkflowSpec(id=id, groups=tuple(groups))

    def _stage(self, id: str) -> StageSpec:
        is_batch = self._maybe(0.15)
        fails = self._pick((0, 0, 0, 1, 2, 3))
        attempts = self._int(1, 3)
        return StageSpec(
            id=id,
            items=() if is_batch else tuple(self._item(number) for number in range(self._pick((0, 1, 2, 3)))),
            fails=fails,
            is_fatal=self._maybe(0.05),
            is_big=self._maybe(0.2),
            max_attempts=attempts,
            max_worker_losses=self._pick((1, 2, 3, 3, 5)),
            delay=self._pick((0.0, 1.0, 4.0, 10.0)),
            timeout=self._rng.uniform(10, 60) if self._maybe(0.1) else None,
            is_batch=is_batch,
        )

    def _item(self, number: int) -> Item:
        width = self._pick((1, 1, 1, 2, 3))
        return tuple(self._step(f"{'abcdefgh'[number]}{place}") for place in range(width))

    def _step(self, name: str) -> StepSpec:
        kind = self._pick(("run", "run", "run", "wait", "signal", "sleep"))
        rng = self._rng
        match kind:
            case "run":
                seconds = self._pick((0.0, 0.5, 3.0, 8.0, 25.0))
            case "sleep":
                seconds = rng.uniform(1, 25)
            case _:
                seconds = rng.uniform(5, 60)
        return StepSpec(
            id=f"{kind}-{name}",
            kind=kind,  # type: ignore[arg-type]  # one of the four
            seconds=round(seconds, 2),
            retries=self._pick((0, 0, 1, 2)),
            fails=self._pick((0, 0, 0, 1, 2)),
            is_fatal=self._maybe(0.05),
            is_big=self._maybe(0.2),
            lease=self._pick((5.0, 30.0)) if self._maybe(0.15) else None,
            on_reclaim="fail" if self._maybe(0.1) else "rerun",
        )

    def _newer(self, workflow: WorkflowSpec) -> WorkflowSpec:
        """The same with one more stage at its end, or with other steps in its last stage."""
        if self._maybe(0.6):
            return replace(workflow, groups=(*workflow.groups, (self._stage("extra"),)))
        last = workflow.groups[-1]
        changed = replace(last[-1], max_attempts=last[-1].max_attempts + 1, is_big=not last[-1].is_big)
        return replace(workflow, groups=(*workflow.groups[:-1], (*last[:-1], changed)))

    # What the operator does

    def _actions(self, scenario: Scenario) -> tuple[Action, ...]:
        rng, chaos = self._rng, scenario.chaos
        runs = self._int(1, 5)
        actions = []
        owners = []
        for number in range(runs):
            workflow = self._pick(scenario.workflows)
            owners.append(workflow)
            begins = round(rng.uniform(0, chaos * 0.6), 2)
            actions.append(
                Action(
                    at=begins,
                    kind="create",
                    run=number,
                    workflow=workflow.id,
                    is_keyed=self._maybe(0.8),
                    is_big=self._maybe(0.2),
                    priority=self._pick((0, 0, 5)),
                )
            )
            actions.extend(self._signals(number, workflow, begins, chaos))
        for _ in range(self._pick((0, 0, 1, 2, 3, 5))):
            number = self._int(0, runs - 1)
            stages = [stage.id for group in owners[number].groups for stage in group]
            kinds = (
                "cancel",
                "cancel",
                "redrive",
                "redrive",
                "redrive-start",
                "redrive-stage",
                "purge",
                "replay",
            )
            kind = self._pick((*kinds, "redrive-latest") if scenario.newer else kinds)
            actions.append(
                Action(
                    at=round(rng.uniform(2, chaos), 2),
                    kind=kind,  # type: ignore[arg-type]  # one of them
                    run=number,
                    stage=self._pick(stages),
                    is_keyed=self._maybe(0.5),
                )
            )
        among = scenario.topology.operators
        ordered = sorted(actions, key=lambda action: action.at)
        return tuple(replace(action, operator=self._int(0, among - 1)) for action in ordered)

    def _signals(self, run: int, workflow: WorkflowSpec, begins: float, chaos: float) -> Iterator[Action]:
        for stage in (stage for group in workflow.groups for stage in group):
            for step in (step for item in stage.items for step in item if step.kind == "signal"):
                for _ in range(self._pick((0, 1, 1, 2))):
                    yield Action(
                        at=round(self._rng.uniform(begins, chaos), 2),
                        kind="signal",
                        run=run,
                        stage=stage.id,
                        step=step.id,
                        is_big=self._maybe(0.15),
                    )

    # What goes wrong

    def _clocks(self, topology: Topology) -> dict[str, ClockSpec]:
        rng = self._rng
        if self._maybe(0.4):
            return {}
        return {
            role: ClockSpec(
                offset=rng.choice((0.0, rng.uniform(-3, 3), rng.uniform(-60, 60))),
                drift=rng.uniform(-1e-3, 1e-3),
            )
            for role in topology.roles
        }

    def _faults(self, scenario: Scenario) -> tuple[Fault, ...]:
        count = self._pick((1, 2, 4, 8, 14))
        faults: list[Fault] = []
        for _ in range(count):
            roll = self._rng.random()
            if roll < 0.5:
                faults.append(self._port_fault(scenario.topology))
            elif roll < 0.65:
                faults.append(self._zombie(scenario))
            elif roll < 0.92:
                faults.append(self._timed_fault(scenario))
            else:
                faults.append(self._delivery_fault(scenario.topology))
        return tuple(faults)

    def _port_fault(self, topology: Topology) -> PortFault:
        rng = self._rng
        role = self._pick(topology.roles)
        if self._maybe(0.35):
            moment, nth = "*", int(2 ** rng.uniform(0, 8.5))
        else:
            kind_of_role = role.partition("-")[0]
            delivers = kind_of_role == "upkeep" and not topology.flushers
            moment = self._pick((*MOMENTS[kind_of_role], *(_FLUSHER_MOMENTS if delivers else ())))
            most = 120 if moment in ("begin", "commit", "committed", "load_runs") else 14
            nth = int(most ** rng.random())
        kind = self._pick(("crash", "crash", "crash", "freeze", "error"))
        if moment in ("committed", "sink.emitted"):
            kind = self._pick(("crash", "lost-reply", "lost-reply", "freeze"))
        return PortFault(
            role=role,
            moment=moment,
            nth=nth,
            kind=kind,  # type: ignore[arg-type]  # one of them
            length=self._length(kind),
        )

    def _timed_fault(self, scenario: Scenario) -> TimedFault:
        rng = self._rng
        kinds = (
            "crash",
            "freeze",
            "freeze",
            "jump",
            "restart",
            "cut-off",
            "blobs-away",
            "sink-refuses",
            "sink-crawls",
            "sink-forgets",
        )
        kind = self._pick(kinds)
        if kind == "jump":
            return self._jump(scenario)
        elsewhere = kind in ("blobs-away", "sink-refuses", "sink-crawls", "sink-forgets")
        return TimedFault(
            at=round(rng.uniform(0, scenario.chaos), 2),
            kind=kind,  # type: ignore[arg-type]  # one of them
            role="" if elsewhere else BUSY if self._maybe(0.5) else self._pick(scenario.topology.roles),
            length=self._length(kind),
            amount=round(rng.uniform(1, 50), 2),
        )

    def _jump(self, scenario: Scenario) -> TimedFault:
        """A clock is set, often that of who looks after runs, and often by more than anybody waits."""
        rng = self._rng
        upkeep = f"upkeep-{self._int(0, scenario.topology.maintainers - 1)}"
        amount = self._pick((rng.uniform(-90, 90), rng.uniform(-900, 900), rng.uniform(300, 900)))
        return TimedFault(
            at=round(rng.uniform(0, scenario.chaos), 2),
            kind="jump",
            role=upkeep if self._maybe(0.5) else self._pick(scenario.topology.roles),
            amount=round(amount, 2),
        )

    def _zombie(self, scenario: Scenario) -> TimedFault:
        """A worker that is frozen soon after there was something to do, and is back soon after its lease has ended."""
        begins = [action.at for action in scenario.actions if action.kind in ("create", "redrive", "signal")]
        return TimedFault(
            at=round(self._pick(begins) + self._rng.uniform(0.1, 12), 2),
            kind="freeze",
            role=BUSY,
            length=round(self._rng.uniform(16, 30), 2),
        )

    def _delivery_fault(self, topology: Topology) -> DeliveryFault:
        return DeliveryFault(
            role=f"worker-{self._int(0, topology.workers - 1)}",
            nth=self._int(1, 8),
            to=f"worker-{self._int(0, topology.workers - 1)}",
            delay=round(self._rng.choice((0.0, self._rng.uniform(0, 40))), 2),
        )

    def _length(self, kind: str) -> float:
        """For how long: mostly a little longer than a lease where somebody is frozen, so that two have one job."""
        rng = self._rng
        if kind == "freeze":
            return round(rng.choice((rng.uniform(1, 10), rng.uniform(16, 35), rng.uniform(16, 90))), 2)
        return round(rng.choice((rng.uniform(0.1, 5), rng.uniform(5, 60))), 2)

    def _pick(self, among: Sequence[T]) -> T:
        return among[int(self._rng.random() * len(among))]

    def _int(self, least: int, most: int) -> int:
        return least + int(self._rng.random() * (most - least + 1))

    def _maybe(self, chance: float) -> bool:
        return self._rng.random() < chance
