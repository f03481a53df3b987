"""`stagewright blobs`: what lies in a blob store that nobody needs."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from stagewright.cli.console import output_console, plain_table
from stagewright.cli.run_summary import time_text
from stagewright.cli.settings import CommandSettings, SettingError, read_settings
from stagewright.duration import parse_duration
from stagewright.hosting import OrphanBlob, OrphanReport, open_kernel, sweep_orphans
from stagewright.hosting.assembly import DEFAULT_URL
from stagewright.plugins import PluginSet

__all__ = ["blobs_command"]

_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.group("blobs")
def blobs_command() -> None:
    """Look after large values."""


@blobs_command.command("orphans")
@click.option("--url", help=f"Where runs are kept; {DEFAULT_URL} by default.")
@click.option("--blob-store", metavar="URL", help="Where large values are, if not at --url.")
@click.option("--delete", is_flag=True, help="Delete what is found; without it nothing is changed.")
@click.option(
    "--min-age",
    metavar="DURATION",
    default="1d",
    show_default=True,
    help="Leave alone what is younger: its run may be yet to commit.",
)
@click.option(
    "--limit", default=10_000, show_default=True, type=click.IntRange(1), help="At most so many blobs."
)
@click.option(
    "--batch", default=500, show_default=True, type=click.IntRange(1), help="Blobs between two pauses."
)
@click.option(
    "--pause",
    metavar="DURATION",
    default="200ms",
    show_default=True,
    help="How long to pause between batches.",
)
@click.option("--all-unknown", is_flag=True, help="Delete even if no run of any blob is known at --url.")
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the report as JSON too.")
@click.pass_obj
def _orphans_command(plugins: PluginSet, /, json_file: Path | None, **flags: Any) -> None:
    """List the blobs whose runs are gone; with --delete, remove them.

    --url and --blob-store have to belong together, and no other database may keep its blobs there: of a run that isn't
    at --url every blob is an orphan. A sweep may be interrupted and repeated at any time.
    """
    settings = read_settings(CommandSettings, {name: flags.pop(name) for name in ("url", "blob_store")})
    where = settings.url or DEFAULT_URL
    if where.startswith("memory:"):
        raise SettingError(f"--url {where}: a store in memory ends with its process; name the one to look at")
    for name in ("min_age", "pause"):
        flags[name] = parse_duration(flags[name], field=f"--{name.replace('_', '-')}")
    if json_file is not None:
        # What was deleted can be told only once.
        with _report_errors(json_file):
            _check_writable(json_file)

    async def swept() -> OrphanReport:
        opening = open_kernel([], where, blob_store=settings.blob_store, plugins=plugins, create_schema=False)
        async with opening as kernel:
            return await sweep_orphans(kernel, **flags)

    report = asyncio.run(swept())
    _print_report(report, delete=flags["delete"], min_age=flags["min_age"])
    if json_file is not None:
        text = json.dumps(_as_json(report), ensure_ascii=False, indent=2)
        with _report_errors(json_file):
            json_file.write_text(text + "\n", encoding="utf-8")


@contextmanager
def _report_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = (
            f"can't be written ({error.strerror or error}); name a file in a folder that you may write to"
        )
        raise SettingError(f"--json {str(file)!r} {problem}") from error


def _check_writable(file: Path) -> None:
    """Open it as it will be opened, and leave everything as it is."""
    if not file.exists():
        file.touch(exist_ok=False)
        file.unlink()
    elif file.is_file():
        file.open("a").close()


def _print_report(report: OrphanReport, *, delete: bool, min_age: timedelta) -> None:
    by_run: dict[tuple[str, str], list[OrphanBlob]] = {}
    for blob in report.orphans:
        by_run.setdefault((blob.run_id, blob.workflow_id), []).append(blob)
    if by_run:
        rows = [
            (run_id, workflow_id, str(len(blobs)), time_text(_last(blobs), with_date=True))
            for (run_id, workflow_id), blobs in by_run.items()
        ]
        head = ("run", "workflow", "blobs", "last written")
        output_console().print(plain_table(head, rows, whole=("run",)))
    found = f"{_counted(len(report.orphans), 'orphan')} of {_counted(len(by_run), 'run')}"
    if not by_run:
        click.echo(f"no orphans among {_counted(report.looked_at, 'blob')}")
    elif delete:
        click.echo(f"{found}; deleted {report.deleted:,}")
    else:
        click.echo(f"{found}; --delete removes them")
    if report.too_new:
        click.echo(f"{_counted(report.too_new, 'blob')} without a run left alone, younger than {min_age}")
    if report.not_ours:
        click.echo(f"{_counted(report.not_ours, 'blob')} left alone that Stagewright has not written")
    if report.has_more:
        how = "the same command again goes on" if delete else "--limit shows them"
        click.echo(f"there may be more; {how}")


def _last(blobs: Sequence[OrphanBlob]) -> datetime:
    return max(blob.written_at for blob in blobs)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _as_json(report: OrphanReport) -> dict[str, Any]:
    return {
        "orphans": [
            {
                "key": blob.key,
                "workflow_id": blob.workflow_id,
                "run_id": blob.run_id,
                "written_at": blob.written_at.isoformat(),
            }
            for blob in report.orphans
        ],
        "deleted": report.deleted,
        "looked_at": report.looked_at,
        "too_new": report.too_new,
        "not_ours": report.not_ours,
        "has_more": report.has_more,
    }
