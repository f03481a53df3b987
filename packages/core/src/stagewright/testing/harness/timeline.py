"""What happened to a run, for people to read when a test of theirs has failed."""

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from stagewright.events import (
    Event,
    StageFailed,
    StageProgress,
    StageRetrying,
    StageSuspended,
    StepSignalled,
    WorkflowCancelled,
    WorkflowFailed,
    event_of_record,
)
from stagewright.kernel import Kernel
from stagewright.records import ErrorRecord, LogRecord, RunRecord, StageRecord, StepRecord
from stagewright.status import Status
from stagewright.testing.harness.duration_text import duration_text

__all__ = ["events_of", "timeline_of"]

_ENGINE: Final = f'File "{Path(__file__).parents[2]}{os.sep}'
_PAGE: Final = 500
_MOST_EVENTS: Final = 80
_MOST_LINES: Final = 20
_MOST_STEPS: Final = 40
_LONGEST: Final = 300


async def events_of(kernel: Kernel, run_id: str) -> list[Event]:
    """All events of a run, in order."""
    found: list[Event] = []
    while True:
        after = found[-1].sequence if found else 0
        page = await kernel.runs.events(run_id, after=after or 0, limit=_PAGE)
        found += [event_of_record(record) for record in page]
        if len(page) < _PAGE:
            return found


async def timeline_of(kernel: Kernel, run_id: str) -> str:
    """The story of a run: its events, its stages with their steps, what it logged, and why it failed."""
    run = await kernel.runs.get(run_id)
    if run is None:
        return f"run {run_id}: there is none, or it was purged"
    stages = await kernel.runs.stages(run_id)
    steps = await kernel.runs.steps(run_id)
    events = await events_of(kernel, run_id)
    logs = await _logs_of(kernel, run_id)
    began = run.created_at
    lines = [_headline(run, kernel.ports.clock.now())]
    if await kernel.ports.served_workflow(run, kernel.ports.persistence) is None:
        lines.append(f"  it is pinned to version {run.definition_version}, which isn't what is served here")
    lines += _cut(_MOST_EVENTS, [f"  {_at(event.timestamp, began)}  {_told(event)}" for event in events])
    for stage in stages:
        of_stage = [step for step in steps if step.stage_record_id == stage.id]
        lines += [f"  {line}" for line in _stage_lines(stage, of_stage, began)]
    if logs:
        lines += [
            "  log:",
            *_cut(_MOST_LINES, [f"    {_at(line.created_at, began)}  {_logged(line)}" for line in logs]),
        ]
    return "\n".join([*lines, *_error_lines(run.error)])


async def _logs_of(kernel: Kernel, run_id: str) -> list[LogRecord]:
    """All lines of a run's log, in order."""
    found: list[LogRecord] = []
    cursor: str | None = None
    while True:
        page = await kernel.runs.logs(run_id, limit=_PAGE, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def _headline(run: RunRecord, now: datetime) -> str:
    lasted = duration_text((run.completed_at or now) - run.created_at)
    return f"run {run.id} of {run.workflow_id}: {run.status}, {lasted} after it was created"


def _at(moment: datetime, began: datetime) -> str:
    return f"+{duration_text(max(moment - began, timedelta(0)))}".ljust(10)


def _told(event: Event) -> str:
    stage_id: str | None = getattr(event, "stage_id", None)
    told = event.type if stage_id is None else f"{event.type} {stage_id}"
    match event:
        case StageFailed() | WorkflowFailed():
            return f"{told}: {_short(event.error)}"
        case StageRetrying():
            return f"{told}: attempt {event.attempt} of {event.max_attempts}: {_short(event.error)}"
        case StageSuspended():
            return f"{told} until {event.next_poll_at:%Y-%m-%d %H:%M:%S} at the latest"
        case StageProgress():
            return f"{told}: {event.progress:g}% {_short(event.message)}"
        case StepSignalled():
            return f"{told}: step {event.step_id!r}"
        case WorkflowCancelled(reason=str(reason)):
            return f"{told}: {_short(reason)}"
        case _:
            return told


def _stage_lines(stage: StageRecord, steps: Sequence[StepRecord], began: datetime) -> Iterator[str]:
    ending = "" if stage.error is None else f": {_short(str(stage.error))}"
    waits = ""
    if stage.status is Status.SUSPENDED and stage.next_poll_at is not None:
        waits = f" until {_at(stage.next_poll_at, began).strip()}"
    yield f"stage {stage.stage_id}: {stage.status}{waits}, attempt {stage.attempt}{ending}"
    yield from _cut(_MOST_STEPS, [f"  {_step_line(step, began)}" for step in steps])


def _step_line(step: StepRecord, began: datetime) -> str:
    executions = f", execution {step.attempt}" if step.kind == "run" else ""
    deadline = step.deadline_at
    waits = "" if deadline is None or step.status != "pending" else f" until {_at(deadline, began).strip()}"
    ending = "" if step.error is None else f": {_short(str(step.error))}"
    return f"step {step.step_id!r} ({step.kind}) {step.status}{waits}{executions}{ending}"


def _logged(line: LogRecord) -> str:
    return f"{line.level}: {_short(line.message)}"


def _error_lines(error: ErrorRecord | None) -> Iterator[str]:
    if error is None:
        return
    where = "" if error.stage_id is None else f" in stage {error.stage_id!r}"
    if error.traceback:
        yield f"  {error.code}{where}"
        yield from (f"    {line}" for line in _without_engine(error.traceback))
    else:
        yield f"  {error.code}{where}: {_short(str(error))}"


def _without_engine(traceback: str) -> Iterator[str]:
    """The lines of a traceback but for the engine's own frames."""
    hides = False
    for line in traceback.rstrip().splitlines():
        if not line.lstrip(" |").startswith("File "):
            hides = hides and line.startswith("    ")
        else:
            hides = _ENGINE in line
        if not hides:
            yield line


def _short(text: str) -> str:
    first = " ".join(text.split())
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"


def _cut(most: int, lines: list[str]) -> list[str]:
    """The last so many lines, and how many came before."""
    hidden = len(lines) - most
    return lines if hidden <= 0 else [f"    … {hidden} before", *lines[hidden:]]
