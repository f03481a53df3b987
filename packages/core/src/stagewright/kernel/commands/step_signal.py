"""`step.signal`: give a waiting step what it waits for, or keep it until the step asks."""

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, TypeVar

from stagewright.definitions.snapshot import stage_ids_of
from stagewright.errors import (
    CapabilityMissingError,
    RunNotFoundError,
    RunStateError,
    StepKindMismatchError,
    StepLedgerNotConfiguredError,
    StepLedgerWriteError,
    StepResultNotSerializableError,
    StepTimeoutError,
    UnknownStageError,
    ValueNotSerializableError,
)
from stagewright.events import StepSignalled
from stagewright.json_values import Json, require_json
from stagewright.kernel.command import Command, Id
from stagewright.kernel.procedures.hand_over import hand_over
from stagewright.kernel.procedures.open_group import job_for
from stagewright.kernel.rules.step_reset import plan_step_reset
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.ports import StepLedger
from stagewright.records import (
    ClaimCheck,
    NewJob,
    RunRecord,
    SignalRecord,
    StepExpectation,
    StepPatch,
    StepRecord,
    StoredStage,
)
from stagewright.runtime.claim_check import encoded, put_spilled
from stagewright.runtime.keys import steps_prefix
from stagewright.runtime.steps.endings import NOT_SERIALIZABLE
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["SignalStep", "SignalStepResult", "handle"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class SignalStepResult:
    """What became of a signal.

    Attributes:
        delivered: Whether this payload is what the step gets, now or when it asks.
        already_completed: Whether the step had been signalled before; the first payload stays.
    """

    delivered: bool
    already_completed: bool


@dataclass(frozen=True, slots=True)
class SignalStep(Command[SignalStepResult]):
    """Signal a step. It may come before the step waits, before its stage begins, and before the run is claimed.

    Attributes:
        run_id: The run.
        stage_id: The stage of its workflow.
        step_id: The step of `ctx.step.wait_for_signal`.
        payload: What the step returns: exact JSON.

    Raises:
        RunNotFoundError: If there is no such run.
        UnknownStageError: If its workflow has no such stage.
        RunStateError: If the run has ended, unless the step was signalled before.
        StepTimeoutError: If the step has waited in vain.
        StepKindMismatchError: If the step is of another kind.
        StepResultNotSerializableError: If the payload has no exact JSON form.
        StepLedgerNotConfiguredError: If the kernel keeps no steps.
        CapabilityMissingError: In a transaction of the caller's, if steps are kept elsewhere.
    """

    type: ClassVar[str] = "step.signal"

    run_id: Id
    stage_id: Id
    step_id: Id
    _: KW_ONLY
    payload: Any = None


@dataclass(frozen=True, slots=True)
class _Payload:
    """A payload as it is stored: inline, or where it lies."""

    value: Json
    inline: Json
    claim: ClaimCheck | None


async def handle(command: SignalStep, unit: UnitOfWork) -> SignalStepResult:
    """Under the run's lock, decide who takes the payload; its event and its nudge are written with it."""
    ledger = unit.ports.step_ledger
    if ledger is None:
        raise StepLedgerNotConfiguredError(command.step_id)
    if unit.ports.is_borrowed and unit.ledger is None:
        fix = (
            "a signal to a step elsewhere can't be a part of your transaction; send it with the kernel itself"
        )
        raise CapabilityMissingError(type(ledger).__name__, "Enlistable", fix)
    value = _json_of(command)
    loaded = await unit.tx.load_runs([command.run_id], lock=True)
    if not loaded:
        raise RunNotFoundError(command.run_id)
    run = loaded[0].run
    unit.note_held(run)
    record = next((stage for stage in loaded[0].stages if stage.stage_id == command.stage_id), None)
    step: StepRecord | None = None
    if record is None:
        await _require_stage(unit, run, command.stage_id)
    else:
        stage_record_id = record.id
        step = await _in_ledger(unit, "step", lambda at: at.get(stage_record_id, command.step_id))
        if step is not None and record.steps_reset_owed_at is not None and plan_step_reset([step]).dropped:
            step = None  # a redrive has forgotten it, and the row goes before the body begins
    if await _is_signalled(command, unit, step):
        return SignalStepResult(delivered=False, already_completed=True)
    _require_open(run, step)
    payload = await _stored(command, unit, run, value)
    if step is None:
        delivered = await _keep(command, unit, payload)
    else:
        delivered = await _complete(unit, step, payload)
    if not delivered:
        _discard(unit, payload)
        return SignalStepResult(delivered=False, already_completed=True)
    unit.emit(
        StepSignalled(
            timestamp=unit.now,
            run_id=run.id,
            stage_id=command.stage_id,
            step_id=command.step_id,
            payload=payload.value,
        )
    )
    if record is not None:
        await _wake(unit, run, record, is_asked_for=step is not None)
    return SignalStepResult(delivered=True, already_completed=False)


def _json_of(command: SignalStep) -> Json:
    try:
        return require_json(command.payload, what="the payload")
    except ValueNotSerializableError as error:
        problem = f"the signal's payload is no exact JSON: {error.problem}"
        raise StepResultNotSerializableError(command.step_id, error.path, problem) from error


async def _require_stage(unit: UnitOfWork, run: RunRecord, stage_id: str) -> None:
    """Refuse a stage that the run's own version of its workflow doesn't have, whether it is served here or not."""
    workflow = await unit.ports.served_workflow(run, unit.tx)
    known: tuple[str, ...] = ()
    if workflow is not None:
        known = tuple(workflow.stage_ids)
    elif run.definition_version is not None:
        definition = await unit.tx.get_definition(run.workflow_id, run.definition_version)
        known = () if definition is None else stage_ids_of(definition.snapshot)
    known = known or tuple(unit.ports.workflow(run.workflow_id).stage_ids)
    if stage_id not in known:
        raise UnknownStageError(run.workflow_id, stage_id, known)


async def _in_ledger(unit: UnitOfWork, what: str, call: Callable[[StepLedger], Awaitable[R]]) -> R:
    """Ask the ledger inside the transaction where it takes part, else with none open."""
    if unit.ledger is not None:
        return await call(unit.ledger)
    ledger = unit.ports.step_ledger
    assert ledger is not None  # without a ledger no signal comes this far
    return unit.fetched(what, lambda: call(ledger))


async def _is_signalled(command: SignalStep, unit: UnitOfWork, step: StepRecord | None) -> bool:
    if step is not None and step.kind == "signal" and (step.status == "completed" or _is_refused(step)):
        return True
    return await unit.tx.get_signal(command.run_id, command.stage_id, command.step_id) is not None


def _is_refused(step: StepRecord) -> bool:
    """Whether the step had a signal whose payload doesn't fit; only a redrive lets it wait anew."""
    return step.status == "failed" and step.error is not None and step.error.code == NOT_SERIALIZABLE


def _require_open(run: RunRecord, step: StepRecord | None) -> None:
    if step is not None and step.kind != "signal":
        raise StepKindMismatchError(step.step_id, "signal", step.kind)
    if run.status in TERMINAL_RUN_STATUSES:
        raise RunStateError(run.id, run.status, "a run that has not ended")
    if step is not None and step.status == "failed":
        raise StepTimeoutError(step.step_id, step.kind, step.deadline_at)


async def _stored(command: SignalStep, unit: UnitOfWork, run: RunRecord, value: Json) -> _Payload:
    data = encoded(value)
    if len(data) <= unit.ports.settings.spill_threshold_bytes:
        return _Payload(value, value, None)
    prefix = steps_prefix(run.workflow_id, run.id, command.stage_id)
    key = f"{prefix}signal-{unit.ports.ids.new_id()}.json"
    claim = unit.fetched("payload", lambda: put_spilled(unit.ports.blob_store, key, data))
    return _Payload(value, None, claim)


async def _keep(command: SignalStep, unit: UnitOfWork, payload: _Payload) -> bool:
    return await unit.tx.insert_signal_if_absent(
        SignalRecord(
            id=unit.ports.ids.new_id(),
            run_id=command.run_id,
            stage_id=command.stage_id,
            step_id=command.step_id,
            created_at=unit.now,
            payload=payload.inline,
            payload_claim=payload.claim,
        )
    )


async def _complete(unit: UnitOfWork, step: StepRecord, payload: _Payload) -> bool:
    """Complete a step that waits; the first outcome stands, be it a signal or the end of its time."""
    patch = StepPatch(
        updated_at=unit.now, status="completed", result=payload.inline, result_claim=payload.claim
    )
    waits = StepExpectation(status="pending")
    applied, current = await _in_ledger(unit, "answer", lambda at: at.compare_and_set(step.id, waits, patch))
    if current is None:
        raise StepLedgerWriteError(step.step_id, "the signal", "its row is gone")
    if not applied and current.status == "failed":
        _discard(unit, payload)
        raise StepTimeoutError(step.step_id, step.kind, current.deadline_at)
    return applied


def _discard(unit: UnitOfWork, payload: _Payload) -> None:
    claim = payload.claim
    if claim is not None:
        unit.sweep(lambda: unit.ports.blob_store.delete(claim.key))


async def _wake(unit: UnitOfWork, run: RunRecord, record: StoredStage, *, is_asked_for: bool) -> None:
    """See that the body looks again soon: at once if its stage waits, else as soon as it would begin to wait."""
    waits_for_step = record.status is Status.SUSPENDED and record.waiting_step_id is not None
    if waits_for_step and (record.next_poll_at is None or not is_asked_for):
        # Its job is claimable already, or it waits for something else: the body sees the signal when it asks.
        return
    job = await _job_of(unit, run, record) if waits_for_step else None
    if job is not None:
        await hand_over(unit, record, job)
    elif record.status in (Status.RUNNING, Status.SUSPENDED):
        await unit.tx.nudge_stage(record.id, unit.now)
        unit.notify("stages")


async def _job_of(unit: UnitOfWork, run: RunRecord, record: StoredStage) -> NewJob | None:
    """The job that the stage wants; who doesn't serve the run's version takes it from the one that sleeps."""
    workflow = await unit.ports.served_workflow(run, unit.tx)
    if workflow is not None and record.stage_id in workflow.stage_ids:
        return job_for(unit, run, workflow.stage(record.stage_id))
    if unit.jobs is not None:
        jobs = await unit.jobs.get_jobs_by_run(run.id)
    else:
        transport = unit.ports.job_transport
        jobs = unit.fetched("jobs", lambda: transport.get_jobs_by_run(run.id))
    asleep = next((job for job in jobs if job.stage_id == record.stage_id), None)
    if asleep is None:
        return None
    return NewJob(
        id=unit.ports.ids.new_id(),
        run_id=run.id,
        workflow_id=run.workflow_id,
        stage_id=record.stage_id,
        definition_version=run.definition_version,
        payload=asleep.payload,
        priority=asleep.priority,
        max_attempts=asleep.max_attempts,
        max_worker_losses=asleep.max_worker_losses,
    )
