"""Checking that everything a store keeps of its runs fits together."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, cast

from stagewright.kernel import Kernel
from stagewright.kernel.context import KernelPorts
from stagewright.ports import Enlistable, JobTransport, Persistence
from stagewright.records import (
    AnnotationQuery,
    ClaimCheck,
    EventRecord,
    JobRecord,
    KeyCompleted,
    KeyInProgress,
    RunQuery,
    RunRecord,
)
from stagewright.runtime.job_payloads import claim_in
from stagewright.testing.history_invariants import annotation_faults, event_faults, step_faults
from stagewright.testing.row_invariants import RunRows, job_faults, run_faults, stage_faults

__all__ = ["assert_consistent"]

_PAGE: Final = 100
_ALL: Final = 1_000_000
_MOST_SHOWN: Final = 40
_RULES: Final = (run_faults, stage_faults, job_faults, event_faults, step_faults, annotation_faults)


async def assert_consistent(kernel: Kernel) -> None:
    """Check every run that a kernel's store has, row against row.

    What is checked: a run's status, times, output and error against its stages; groups in order; stages and jobs
    against each other, so that no stage waits for a job that neither is there nor is owed; budgets and counters; events
    without a gap, in order, with exactly one end for each time the run ended; durable steps against their stages; claim
    checks against the blob store; annotations; the definition that a run is pinned to; idempotency keys against the
    runs that they made.

    Nothing is changed. Call it when no command is being carried out; bodies may be running, and workers may be lost.

    Raises:
        AssertionError: Naming each run with all that is wrong about it.
    """
    found: list[str] = []
    async for run in _runs(kernel.ports):
        found += [f"run {run.id!r}: {fault}" for fault in await _faults(kernel, run.id)]
    if found:
        hidden = len(found) - _MOST_SHOWN
        shown = [*found[:_MOST_SHOWN], *([f"… and {hidden} more"] if hidden > 0 else [])]
        raise AssertionError("\n".join([f"{len(found)} things don't fit together:", *shown]))


async def _runs(ports: KernelPorts) -> AsyncIterator[RunRecord]:
    cursor: str | None = None
    while True:
        page = await ports.run_reader.list_runs(RunQuery(), limit=_PAGE, cursor=cursor)
        for run in page.items:
            yield run
        cursor = page.next_cursor
        if cursor is None:
            return


async def _faults(kernel: Kernel, run_id: str) -> list[str]:
    ports = kernel.ports
    rows = await _rows(ports, run_id)
    if rows is None:  # it was purged meanwhile
        return []
    found = [fault for rule in _RULES for fault in rule(rows)]
    found += await _missing_blobs(ports, rows)
    version = rows.run.definition_version
    if version is not None and not await ports.persistence.get_definition(rows.run.workflow_id, version):
        found.append(f"the definition of its version {version!r} isn't there")
    return found + await _key_faults(ports, rows)


async def _rows(ports: KernelPorts, run_id: str) -> RunRows | None:
    """All rows of a run; run, stages and jobs of one database as of one moment, since whoever writes holds the run."""
    async with ports.persistence.transaction() as tx:
        loaded = await tx.load_runs([run_id], lock=True)
        if not loaded:
            return None
        run, stages = loaded[0].run, loaded[0].stages
        jobs = await _jobs(ports, tx, run_id)
        annotations = await tx.list_annotations(run_id, AnnotationQuery(limit=_ALL))
    # Readers stand outside of transactions, and a database may have one connection for both.
    events: Sequence[EventRecord] = await ports.run_reader.list_events(run_id, after=0, limit=_ALL)
    steps = (await ports.run_reader.list_steps(run_id, limit=None, cursor=None)).items
    workflow = await ports.served_workflow(run, ports.persistence)
    groups = () if workflow is None or run.redrive_count else workflow.groups
    return RunRows(
        run=run,
        stages=stages,
        jobs=jobs,
        steps=steps,
        events=events,
        annotations=annotations,
        queue_is_elsewhere=not ports.transport_enlists,
        stage_ids=[[stage.id for stage in group] for group in groups],
    )


async def _jobs(ports: KernelPorts, tx: Persistence, run_id: str) -> Sequence[JobRecord]:
    if not ports.transport_enlists:
        return await ports.job_transport.get_jobs_by_run(run_id)
    enlisted = cast(JobTransport, cast(Enlistable, ports.job_transport).enlist(tx))
    return await enlisted.get_jobs_by_run(run_id)


async def _missing_blobs(ports: KernelPorts, rows: RunRows) -> list[str]:
    claims = dict(_claims(rows))
    there = await asyncio.gather(*(ports.blob_store.has(claim.key) for claim in claims.values()))
    return [
        f"{what} lies under {claim.key!r}, and there is nothing"
        for (what, claim), is_there in zip(claims.items(), there, strict=True)
        if not is_there
    ]


def _claims(rows: RunRows) -> Iterator[tuple[str, ClaimCheck]]:
    for stage in rows.stages:
        if stage.output_claim is not None:
            yield f"the output of its stage {stage.stage_id!r}", stage.output_claim
        for name, claim in stage.artifacts.items():
            yield f"the artifact {name!r} of its stage {stage.stage_id!r}", claim
    for step in rows.steps:
        if step.result_claim is not None:
            yield f"the result of its step {step.step_id!r}", step.result_claim
    for job in rows.jobs:
        claim_check = claim_in(job.payload)
        if claim_check is not None:
            yield f"the payload of the job of its stage {job.stage_id!r}", claim_check


class _Undo(Exception):
    """Ends a transaction that was only to look."""


async def _key_faults(ports: KernelPorts, rows: RunRows) -> list[str]:
    """A key under which the run was made is completed, and answers with this run.

    All events of a command share their cause, which is the command's key if it has one.
    """
    keys = {event.causation_id for event in rows.events if event.type == "workflow:created"}
    found: list[str] = []
    for key in keys:
        answer = await _looked_up(ports, key)
        if isinstance(answer, KeyInProgress):
            found.append(f"it was created under the key {key!r}, which is still in progress")
        elif isinstance(answer, KeyCompleted):
            result: Any = answer.result  # Any: a stored result is JSON of the command's own form
            if result.get("run_id") != rows.run.id:
                found.append(f"it was created under the key {key!r}, which answers {result}")
    return found


async def _looked_up(ports: KernelPorts, key: str) -> object:
    """What a store says about a key; taking one that nobody has is undone."""
    answer: object = None
    try:
        async with ports.persistence.transaction() as tx:
            answer = await tx.acquire_idempotency_key(
                key, "run.create", fingerprint="", now=ports.clock.now(), stale_after=None
            )
            raise _Undo
    except _Undo:
        return answer
