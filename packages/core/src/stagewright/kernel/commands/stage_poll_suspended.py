"""`stage.pollSuspended`: move on the suspended stages whose time has come."""

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from stagewright.kernel.command import Command, Count, ServedDefinitions
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.hand_over import hand_over
from stagewright.kernel.procedures.open_group import job_for
from stagewright.kernel.procedures.poll_batch import ClaimedBatch, claim_batch, poll_batch
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.records import Serves

__all__ = ["PollSuspendedStages", "PollSuspendedStagesResult", "handle"]


@dataclass(frozen=True, slots=True)
class PollSuspendedStagesResult:
    """What a poll did.

    Attributes:
        checked: How many due stages it took.
        resumed: How many of them it handed back as jobs, or completed.
        failed: How many of them are FAILED by it.
        resumed_run_ids: The runs of the resumed ones; `TransitionRun` is due for each, and may find nothing to do.
    """

    checked: int
    resumed: int
    failed: int
    resumed_run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PollSuspendedStages(Command[PollSuspendedStagesResult]):
    """Hand due stages back as jobs, so that their bodies run as any other does; ask batches whether they are done.

    A check that raises spends one attempt of its stage, which is then checked again, and fails when none is left. It
    may be repeated when its outcome could not be recorded.

    Attributes:
        max_checks: At most so many stages, the earliest due first.
        serves: Which definitions; None is what this kernel's registry lists, `"all"` is every one.
    """

    type: ClassVar[str] = "stage.pollSuspended"

    _: KW_ONLY
    max_checks: Count = 10
    serves: ServedDefinitions = None


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one poll took: stages handed back as jobs, of these runs, and batches to be checked."""

    handed_over: list[str] = field(default_factory=list)
    batches: list[ClaimedBatch] = field(default_factory=list)


async def handle(command: PollSuspendedStages, ports: KernelPorts) -> PollSuspendedStagesResult:
    """Take what is due in one transaction, then check batches side by side, each recorded by itself."""
    serves = ports.serves_of(command.serves)
    # Mostly nothing is due, which a read without a transaction tells.
    if not await ports.persistence.get_suspended_stages(ports.clock.now(), limit=1, serves=serves):
        return PollSuspendedStagesResult(0, 0, 0, ())
    taken = await in_transaction(ports, lambda unit: _take(unit, command.max_checks, serves))
    polled = await asyncio.gather(
        *(poll_batch(ports, batch) for batch in taken.batches), return_exceptions=True
    )
    # Every check is heard out; only then is an error of the stores let out.
    for outcome in polled:
        if isinstance(outcome, BaseException):
            raise outcome
    done = [
        batch.loaded.run.id
        for batch, outcome in zip(taken.batches, polled, strict=True)
        if outcome == "completed"
    ]
    resumed = [*taken.handed_over, *done]
    return PollSuspendedStagesResult(
        checked=len(taken.handed_over) + len(taken.batches),
        resumed=len(resumed),
        failed=polled.count("failed"),
        resumed_run_ids=tuple(dict.fromkeys(resumed)),
    )


async def _take(unit: UnitOfWork, limit: int, serves: Serves) -> _Taken:
    records = await unit.tx.get_suspended_stages(unit.now, limit=limit, serves=serves)
    loaded = await unit.tx.load_runs({record.run_id for record in records}, lock=True)
    runs = {one.run.id: one for one in loaded}
    taken = _Taken()
    for record in records:
        one = runs[record.run_id]
        workflow = await unit.ports.served_workflow(one.run, unit.tx)
        if workflow is None or record.stage_id not in workflow.stage_ids:
            continue
        stage = workflow.stage(record.stage_id)
        if stage.mode == "async-batch" and record.waiting_step_id is None:
            taken.batches.append(await claim_batch(unit, one, workflow, record))
        else:
            await hand_over(unit, record, job_for(unit, one.run, stage))
            taken.handed_over.append(one.run.id)
    return taken
