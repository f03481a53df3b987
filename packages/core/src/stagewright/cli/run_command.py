"""`stagewright run`: one run, driven to its end in this process."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click

from stagewright.cli.printable import one_line
from stagewright.cli.run_input import read_config, read_input
from stagewright.cli.run_summary import print_output, print_stages
from stagewright.cli.run_view import RunView, open_view
from stagewright.cli.settings import CommandSettings, read_settings
from stagewright.cli.targets import LoadedTarget, load_target
from stagewright.commands import CreateRun
from stagewright.definitions import Workflow
from stagewright.duration import parse_duration
from stagewright.hosting import drive_run, open_kernel
from stagewright.json_values import Json
from stagewright.plugins import PluginSet
from stagewright.records import RunRecord, StageRecord
from stagewright.status import Status

__all__ = ["run_command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    target: LoadedTarget
    workflow: Workflow
    url: str
    blob_store: str | None
    input: Json
    config: dict[str, Json]
    timeout: timedelta | None


class _RunFailure(click.ClickException):
    """The run didn't complete; its line goes to standard error."""

    exit_code = 1


class _Interrupted(click.ClickException):
    exit_code = 130


@click.command("run")
@click.argument("target")
@click.option("--workflow", "workflow_id", metavar="ID", help="Which workflow, when the target has several.")
@click.option("--url", help="Where the state of the run is kept; by default nowhere, memory://.")
@click.option("--blob-store", metavar="URL", help="Where large values are kept, if not at --url.")
@click.option(
    "--input", "inputs", multiple=True, metavar="KEY=VALUE", help="One field of the input; repeatable."
)
@click.option("--input-json", metavar="TEXT|@FILE", help="The input as JSON; @- reads standard input.")
@click.option(
    "--config", "config", multiple=True, metavar="STAGE.KEY=VALUE", help="One config field; repeatable."
)
@click.option("--timeout", metavar="DURATION", help="Give up after this long, such as 30s or 5m.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the output, as JSON.")
@click.pass_obj
def run_command(
    plugins: PluginSet,
    target: str,
    workflow_id: str | None,
    url: str | None,
    blob_store: str | None,
    inputs: tuple[str, ...],
    input_json: str | None,
    config: tuple[str, ...],
    timeout: str | None,
    quiet: bool,
) -> int:
    """Run the workflow TARGET to its end, here.

    TARGET is path/to/file.py:name or package.module:name, and names a workflow, a list of workflows or a registry.
    """
    loaded = load_target(target)
    workflow = loaded.choose(workflow_id)
    settings = read_settings(CommandSettings, {"url": url, "blob_store": blob_store})
    url = settings.url or "memory://"
    request = _Request(
        target=loaded,
        workflow=workflow,
        url=url,
        blob_store=settings.blob_store,
        input=read_input(workflow, input_json, inputs),
        config=read_config(workflow, config),
        timeout=None if timeout is None else parse_duration(timeout, field="timeout"),
    )
    view = open_view(workflow, quiet=quiet)
    try:
        with view:
            run, stages = asyncio.run(_driven(request, plugins, view))
    except KeyboardInterrupt:
        kept = view.run_id is not None and not url.startswith("memory:")
        raise _Interrupted(
            f"interrupted; run {view.run_id} stays as it is" if kept else "interrupted"
        ) from None
    except SystemExit as error:
        raise _RunFailure(
            f"something called sys.exit({error.code!r}); run {view.run_id} {_left(url)}"
        ) from None
    except TimeoutError:
        raise _RunFailure(f"run {view.run_id} did not end within {timeout}; it {_left(url)}") from None
    if not quiet:
        print_stages(workflow, run, stages)
    if run.status is not Status.COMPLETED:
        raise _RunFailure(_reason(run))
    print_output(run.output, whole=quiet, folder=Path.cwd())
    return 0


async def _driven(
    request: _Request, plugins: PluginSet, view: RunView
) -> tuple[RunRecord, list[StageRecord]]:
    opening = open_kernel(
        request.target.registry, request.url, blob_store=request.blob_store, plugins=plugins
    )
    async with opening as kernel:
        created = await kernel.dispatch(
            CreateRun(workflow_id=request.workflow.id, input=request.input, config=request.config)
        )
        view.created(created.run_id)
        run = await drive_run(kernel, created.run_id, on_event=view.show, timeout=request.timeout)
        return run, await kernel.runs.stages(run.id)


def _left(url: str) -> str:
    return "is gone with this process" if url.startswith("memory:") else "was left as it is"


def _reason(run: RunRecord) -> str:
    if run.error is None:
        return f"run {run.id} is {run.status}"
    where = "" if run.error.stage_id is None else f" at stage {run.error.stage_id!r}"
    return f"run {run.id} is {run.status}{where}: {one_line(str(run.error))}"
