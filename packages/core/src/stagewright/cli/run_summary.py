"""What is printed when a run has ended."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from stagewright.cli.console import output_console, plain_table
from stagewright.cli.printable import one_line
from stagewright.definitions import Workflow
from stagewright.json_values import Json
from stagewright.records import RunRecord, StageRecord
from stagewright.status import Status

__all__ = ["STATUS_STYLES", "duration_text", "print_output", "print_stages", "status_text", "time_text"]

STATUS_STYLES: Final = {
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.CANCELLED: "yellow",
    Status.RUNNING: "cyan",
    Status.SUSPENDED: "magenta",
}
_MOST_LINES: Final = 60
_CONTROL: Final = re.compile(r"[\x7f-\x9f\u2028\u2029]")


def print_stages(workflow: Workflow, run: RunRecord, stages: list[StageRecord]) -> None:
    """Print a table of all stages of the workflow, and a line about the run."""
    by_id = {stage.stage_id: stage for stage in stages}
    console = output_console()
    rows = [_row(stage_id, by_id.get(stage_id)) for stage_id in workflow.stage_ids]
    console.print(plain_table(("stage", "status", "attempt", "started", "duration"), rows))
    took = "" if run.duration is None else f" in {duration_text(run.duration)}"
    console.print(Text.assemble(f"run {run.id} of {run.workflow_id}: ", status_text(run.status), took))


def print_output(output: Json, *, whole: bool, folder: Path | None) -> None:
    """Print a run's output as JSON, and the files that it names.

    Args:
        output: The output.
        whole: Print all of it and nothing else; otherwise a long one is cut.
        folder: Paths of files below it are shown relative to it; None shows no files.
    """
    lines = _json_text(output).split("\n")
    if whole:
        click.echo("\n".join(lines))
        return
    click.echo("output:")
    click.echo("\n".join(lines[:_MOST_LINES]))
    if len(lines) > _MOST_LINES:
        click.echo(f"… and {len(lines) - _MOST_LINES} lines more; --quiet prints all of it")
    for name, path in () if folder is None else _files(output):
        shown = path.relative_to(folder) if folder is not None and path.is_relative_to(folder) else path
        click.echo(one_line(f"{name}: {shown} ({_size_text(path.stat().st_size)})"))


def duration_text(duration: timedelta) -> str:
    """A length of time for people: `0.12 s`, `3 min 5 s`, `2 h 10 min`."""
    seconds = duration.total_seconds()
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _json_text(value: Json) -> str:
    """JSON with every control character as an escape; `json` leaves some of them as they are."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _row(stage_id: str, stage: StageRecord | None) -> tuple[str | Text, ...]:
    if stage is None:
        return stage_id, Text("not reached", style="dim"), "", "", ""
    return (
        stage_id,
        status_text(stage.status),
        str(stage.attempt),
        "" if stage.started_at is None else time_text(stage.started_at),
        "" if stage.duration is None else duration_text(stage.duration),
    )


def status_text(status: Status) -> Text:
    """A status in its colour."""
    return Text(status.value, style=STATUS_STYLES.get(status, ""))


def time_text(moment: datetime, *, with_date: bool = False) -> str:
    """A time of day for people, in their zone."""
    if with_date:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return moment.astimezone().strftime("%H:%M:%S.%f")[:-3]


def _files(output: Json) -> list[tuple[str, Path]]:
    """The members of an output that are paths of files that exist."""
    members = output.items() if isinstance(output, dict) else [("output", output)]
    paths = [
        (name, Path(value)) for name, value in members if isinstance(value, str) and 0 < len(value) < 4096
    ]
    return [(name, path) for name, path in paths if path.is_absolute() and _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # A text that no file could be called.
        return False


def _size_text(size: int) -> str:
    return f"{size} bytes" if size < 1_000 else f"{size / 1_000:.1f} kB"
