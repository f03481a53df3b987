"""How a run is shown while it works: live on a terminal, line by line into a pipe."""

import time
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from stagewright.cli.console import output_console, plain_table
from stagewright.cli.printable import one_line
from stagewright.cli.run_summary import STATUS_STYLES, duration_text
from stagewright.definitions import Workflow
from stagewright.events import (
    Event,
    StageCompleted,
    StageFailed,
    StageProgress,
    StageRetrying,
    StageStarted,
    StageSuspended,
)
from stagewright.status import Status

__all__ = ["LiveView", "PlainView", "RunView", "open_view"]


class RunView:
    """Shows nothing; what the other views have in common."""

    run_id: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def created(self, run_id: str) -> None:
        """The run exists now."""
        self.run_id = run_id

    def show(self, event: Event) -> None:
        """Something happened to the run."""


def open_view(workflow: Workflow, *, quiet: bool) -> RunView:
    """The view that fits: none when quiet, live on a terminal, else plain."""
    if quiet:
        return RunView()
    console = output_console()
    return LiveView(workflow, console) if console.is_terminal else PlainView(workflow)


class PlainView(RunView):
    """One line for each thing that happens."""

    def __init__(self, workflow: Workflow) -> None:
        """Show a run of this workflow."""
        self._workflow = workflow

    def created(self, run_id: str) -> None:
        super().created(run_id)
        click.echo(f"run {run_id} of {self._workflow.id}")

    def show(self, event: Event) -> None:
        line = _line(event)
        if line is not None:
            click.echo(one_line(line))


def _line(event: Event) -> str | None:
    match event:
        case StageStarted():
            return f"{event.stage_id}: started"
        case StageProgress():
            return f"{event.stage_id}: {event.progress:.0f}%{' ' * bool(event.message)}{event.message}"
        case StageCompleted():
            return f"{event.stage_id}: completed{_took(event.duration)}"
        case StageRetrying():
            return f"{event.stage_id}: attempt {event.attempt} of {event.max_attempts} failed: {event.error}"
        case StageSuspended():
            return f"{event.stage_id}: waits, and looks again by {event.next_poll_at.astimezone():%H:%M:%S}"
        case StageFailed():
            return f"{event.stage_id}: failed: {event.error}"
        case _:
            return None


def _took(duration: timedelta | None) -> str:
    return "" if duration is None else f" in {duration_text(duration)}"


@dataclass(slots=True)
class _StageState:
    status: Status = Status.PENDING
    began: float | None = None
    took: timedelta | None = None
    note: str = ""


class LiveView(RunView):
    """A table that changes in place, and goes when the run has ended."""

    def __init__(self, workflow: Workflow, console: Console) -> None:
        """Show a run of this workflow on this console."""
        self._workflow = workflow
        self._stages = {stage_id: _StageState() for stage_id in workflow.stage_ids}
        self._spinner = Spinner("dots")
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=10, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        stage_id: str | None = getattr(event, "stage_id", None)
        state = None if stage_id is None else self._stages.get(stage_id)
        if state is None:
            return
        match event:
            case StageStarted():
                state.status, state.began, state.took = Status.RUNNING, time.monotonic(), None
            case StageProgress():
                state.note = f"{event.progress:.0f}% {event.message}"
            case StageCompleted():
                state.status, state.took = Status.COMPLETED, event.duration
            case StageRetrying():
                state.status, state.note = Status.PENDING, event.error
            case StageSuspended():
                state.status = Status.SUSPENDED
            case StageFailed():
                state.status, state.note = Status.FAILED, event.error
            case _:
                pass

    def _table(self) -> RenderableType:
        rows = [
            (
                self._mark(state),
                stage_id,
                _elapsed(state),
                Text(one_line(state.note), overflow="ellipsis", no_wrap=True),
            )
            for stage_id, state in self._stages.items()
        ]
        return plain_table(("", self._workflow.name, "", ""), rows)

    def _mark(self, state: _StageState) -> Text:
        if state.status is Status.RUNNING:
            frame = self._spinner.render(time.monotonic())
            return frame if isinstance(frame, Text) else Text("…")
        marks = {Status.COMPLETED: "✓", Status.FAILED: "✗", Status.SUSPENDED: "⏸"}
        return Text(marks.get(state.status, "·"), style=STATUS_STYLES.get(state.status, "dim"))


def _elapsed(state: _StageState) -> str:
    if state.took is not None:
        return duration_text(state.took)
    if state.status is Status.RUNNING and state.began is not None:
        return duration_text(timedelta(seconds=time.monotonic() - state.began))
    return ""
