"""`stagewright runs`: what a store knows of its runs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click
from rich.text import Text

from stagewright.cli.console import output_console, plain_table
from stagewright.cli.printable import one_line
from stagewright.cli.run_summary import duration_text, print_output, status_text, time_text
from stagewright.cli.settings import CommandSettings, SettingError, read_settings
from stagewright.errors import RunNotFoundError
from stagewright.hosting import open_kernel
from stagewright.hosting.assembly import DEFAULT_URL
from stagewright.kernel import Kernel
from stagewright.plugins import PluginSet
from stagewright.records import EventRecord, LogRecord, Page, RunRecord, StageRecord, StepRecord
from stagewright.status import Status

__all__ = ["runs_command"]

R = TypeVar("R")
_MOST = 1_000
_WIDE = 110
_NARROW_COLUMNS = 4


@click.group("runs")
def runs_command() -> None:
    """Look at the runs of a store."""


@runs_command.command("list")
@click.option("--url", help=f"Where runs are kept; {DEFAULT_URL} by default.")
@click.option("--workflow", "workflow_id", metavar="ID", help="Only runs of this workflow.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(
        [status.value for status in Status if status is not Status.SUSPENDED], case_sensitive=False
    ),
    help="Only runs in this status; repeatable.",
)
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1, _MOST), help="At most so many."
)
@click.pass_obj
def _list_command(
    plugins: PluginSet, url: str | None, workflow_id: str | None, statuses: tuple[str, ...], limit: int
) -> None:
    """List runs, the newest first."""

    async def read(kernel: Kernel) -> tuple[tuple[RunRecord, ...], bool]:
        wanted = [Status(status.upper()) for status in statuses] or None
        page = await kernel.runs.list(workflow_id=workflow_id, statuses=wanted, limit=limit)
        return page.items, page.next_cursor is not None

    runs, has_more = _read(plugins, url, read)
    rows = [
        (
            run.id,
            run.workflow_id,
            status_text(run.status),
            "" if run.duration is None else duration_text(run.duration),
            time_text(run.created_at, with_date=True),
            "" if run.error is None else str(run.error),
        )
        for run in runs
    ]
    console = output_console()
    head = ("run", "workflow", "status", "duration", "created", "error")
    # The ids have to be whole, for `runs show`, which tells what a narrow terminal has no room for.
    shown = len(head) if console.width >= _WIDE else _NARROW_COLUMNS
    console.print(plain_table(head[:shown], [row[:shown] for row in rows], whole=("run",)))
    if has_more:
        click.echo(f"there are more; --limit shows up to {_MOST}")


@runs_command.command("show")
@click.argument("run_id")
@click.option("--url", help=f"Where runs are kept; {DEFAULT_URL} by default.")
@click.option("--events", "with_events", is_flag=True, help="Also what happened, in order.")
@click.option("--logs", "with_logs", is_flag=True, help="Also what its stages logged.")
@click.pass_obj
def _show_command(
    plugins: PluginSet, run_id: str, url: str | None, with_events: bool, with_logs: bool
) -> None:
    """Show the run RUN_ID: its stages, its durable steps, and its output."""

    async def read(
        kernel: Kernel,
    ) -> tuple[RunRecord, list[StageRecord], Page[StepRecord], list[EventRecord], tuple[LogRecord, ...]]:
        run = await kernel.runs.get(run_id)
        if run is None:
            raise RunNotFoundError(run_id)
        stages, steps = await kernel.runs.stages(run_id), await kernel.runs.step_page(run_id, limit=_MOST)
        events = await kernel.runs.events(run_id, limit=_MOST) if with_events else []
        logs = (await kernel.runs.logs(run_id, limit=_MOST)).items if with_logs else ()
        return run, stages, steps, events, logs

    run, stages, steps, events, logs = _read(plugins, url, read)
    _print_run(run, stages)
    _print_steps(stages, steps.items)
    if steps.next_cursor is not None:
        click.echo(f"there are more durable steps; these are the first {_MOST}")
    for event in events:
        of_stage = event.payload.get("stage_id")
        click.echo(one_line(f"{time_text(event.occurred_at)}  {event.type}  {of_stage or ''}".rstrip()))
    for line in logs:
        click.echo(
            one_line(f"{time_text(line.created_at)}  {line.level}  {line.stage_id or ''}  {line.message}")
        )
    if run.error is not None:
        click.echo(one_line(f"error: {run.error}"))
    if run.status is Status.COMPLETED:
        print_output(run.output, whole=False, folder=None)


def _print_run(run: RunRecord, stages: list[StageRecord]) -> None:
    console = output_console()
    took = "" if run.duration is None else f" in {duration_text(run.duration)}"
    console.print(
        Text.assemble(f"run {run.id} of {one_line(run.workflow_id)}: ", status_text(run.status), took)
    )
    rows = [
        (
            stage.stage_id,
            status_text(stage.status),
            str(stage.attempt),
            "" if stage.started_at is None else time_text(stage.started_at),
            "" if stage.duration is None else duration_text(stage.duration),
            _note(stage),
        )
        for stage in stages
    ]
    if rows:
        console.print(plain_table(("stage", "status", "attempt", "started", "duration", ""), rows))


def _note(stage: StageRecord) -> str:
    if stage.error is not None:
        return str(stage.error)
    if stage.status is Status.SUSPENDED and stage.next_poll_at is not None:
        return f"until {time_text(stage.next_poll_at, with_date=True)}"
    return ""


def _print_steps(stages: list[StageRecord], steps: Sequence[StepRecord]) -> None:
    names = {stage.id: stage.stage_id for stage in stages}
    rows = [
        (
            names.get(step.stage_record_id, ""),
            step.step_id,
            step.kind,
            step.status,
            str(step.attempt),
            "" if step.error is None else str(step.error),
        )
        for step in steps
    ]
    if rows:
        output_console().print(plain_table(("stage", "step", "kind", "status", "attempt", "error"), rows))


def _read(plugins: PluginSet, url: str | None, read: Callable[[Kernel], Awaitable[R]]) -> R:
    where = read_settings(CommandSettings, {"url": url}).url or DEFAULT_URL
    if where.startswith("memory:"):
        raise SettingError(f"--url {where}: a store in memory ends with its process; name the one to look at")

    async def opened() -> R:
        async with open_kernel([], where, plugins=plugins, create_schema=False) as kernel:
            return await read(kernel)

    return asyncio.run(opened())
