"""What was told is true: events reach the sink, annotations and events come together, answers hold."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from stagewright.commands import CancelRunResult, CreateRunResult, RedriveRunResult, SignalStepResult
from stagewright_simulation.history import Violation, token_of
from stagewright_simulation.promises.rows import CommitWatch
from stagewright_simulation.world import World

__all__ = ["promises_of_answers", "promises_of_events", "promises_of_reports", "promises_of_retries"]


def promises_of_events(world: World, watch: CommitWatch) -> Iterator[Violation]:
    """Every committed event reached the sink, in its run's order, and no other did."""
    first: dict[str, list[int]] = defaultdict(list)
    seen: set[str] = set()
    accepted = {one.event_id for one in world.history.deliveries if one.is_accepted}
    for delivery in world.history.deliveries:
        if not delivery.is_committed:
            yield Violation(
                "no-event-of-a-rollback", f"event {delivery.event_id} was delivered and never committed"
            )
        if delivery.event_id not in seen:
            seen.add(delivery.event_id)
            first[delivery.run_id].append(delivery.sequence)
    for run_id, sequences in first.items():
        if sequences != sorted(sequences):
            yield Violation("events-in-order", f"run {run_id} was told {sequences}")
    for run_id, events in watch.events.items():
        numbers = sorted(sequence for sequence, *_ in events)
        if numbers != list(range(1, len(numbers) + 1)):
            yield Violation("events-in-order", f"the events of {run_id} are numbered {numbers}")
        for sequence, event_id, type_, _ in events:
            if event_id not in accepted | watch.given_up:
                yield Violation("events-delivered", f"event {sequence} of {run_id}, {type_}, never got out")


def promises_of_reports(world: World, watch: CommitWatch) -> Iterator[Violation]:
    """What a body says with its outcome is kept as a whole or not at all."""
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for row in world.main.annotations.all().values():
        if row.record.key in ("sim.began", "sim.ended"):
            said[str(row.record.value)][row.record.key] += 1
    purged = watch.purged
    told: dict[str, Counter[str]] = defaultdict(Counter)
    for run_id, events in watch.events.items():
        for _, _, type_, payload in events:
            if type_ == "stage:progress" and run_id not in purged:
                told[str(payload.get("message"))][str(payload.get("progress", payload.get("percent")))] += 1
    for nonce, run_id in world.history.invocations.items():
        if run_id in purged:
            continue
        counts = [*said[nonce].values(), *told[nonce].values()]
        began, ended = said[nonce]["sim.began"], said[nonce]["sim.ended"]
        progress = sum(told[nonce].values())
        if any(count > 1 for count in counts):
            yield Violation("reports-once", f"{nonce} of {run_id}: {said[nonce]} {told[nonce]}")
        # Who is suspended or fails half-way says less, and that as a whole.
        if began + ended != progress or ended > began:
            yield Violation("annotations-with-events", f"{nonce} of {run_id}: {said[nonce]} {told[nonce]}")


def promises_of_answers(world: World, watch: CommitWatch) -> Iterator[Violation]:
    """What the operator was told came true."""
    cancelled = Counter(run_id for run_id, _ in watch.cancellations)
    told_cancelled: Counter[str] = Counter()
    redriven: Counter[str] = Counter()
    recorded = {token for tokens in world.history.recorded.values() for token in tokens}
    kept = set(_kept_signals(world))
    for answer in world.history.answers:
        match answer.result:
            case CreateRunResult(run_id=run_id) if run_id not in watch.created:
                yield Violation("answers-true", f"run {run_id} was never created")
            case CancelRunResult(cancelled=True):
                told_cancelled[answer.run_id] += 1
            case RedriveRunResult(run_id=run_id):
                redriven[run_id] += 1
            case SignalStepResult(delivered=True) if answer.token not in recorded | kept:
                if answer.run_id not in watch.purged and not watch.redrives[answer.run_id]:
                    yield Violation(
                        "signals-kept", f"{answer.token} to {answer.run_id} was accepted and is gone"
                    )
            case _:
                continue
    for token, run_id in watch.taken_signals:
        if token not in recorded and run_id not in watch.purged:
            yield Violation("signals-kept", f"{token} to {run_id} was taken and no step has it")
    for run_id, count in told_cancelled.items():
        if count > cancelled[run_id]:
            yield Violation(
                "answers-true", f"run {run_id}: {count} cancellations told, {cancelled[run_id]} made"
            )
    for run_id, count in redriven.items():
        # A repetition under a key is told of the first one.
        if watch.redrives[run_id] == 0:
            yield Violation("answers-true", f"run {run_id}: {count} redrives told, none made")


def _kept_signals(world: World) -> Iterator[str]:
    """The tokens of signals that wait for their steps, and for no step that has waited in vain."""
    for signal in world.main.signals.all().values():
        payload = signal.payload
        if signal.payload_claim is not None:
            row = world.blob_database.blobs.get(signal.payload_claim.key)
            payload = None if row is None else json.loads(row.data)
        stage = next(
            (
                one
                for one in world.main.stages.all().values()
                if (one.run_id, one.stage_id) == (signal.run_id, signal.stage_id)
            ),
            None,
        )
        step = None if stage is None else world.step_database.steps.get((stage.id, signal.step_id))
        if step is None or step.status != "failed" or world.scenario.topology.steps_apart:
            yield token_of(payload) or ""


def promises_of_retries(world: World, watch: CommitWatch) -> Iterator[Violation]:
    """Each failure counts, one at a time, until a stage's end or its next redrive."""
    if world.scenario.topology.jobs_apart:
        return
    for run_id, events in watch.events.items():
        counted: dict[str, int] = {}
        for _, _, type_, payload in sorted(events):
            stage_id = str(payload.get("stage_id"))
            if type_ == "workflow:started":
                counted.clear()
            elif type_ == "stage:retrying":
                number = int(payload["attempt"])
                if number != counted.get(stage_id, 0) + 1 or number >= int(payload["max_attempts"]):
                    yield Violation(
                        "budgets", f"{stage_id} of {run_id} retries after failure {number}: {payload}"
                    )
                counted[stage_id] = number
