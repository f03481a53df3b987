"""`stagewright demo`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from stagewright.cli.run_summary import print_output, print_stages
from stagewright.cli.targets import LoadedTarget, load_target
from stagewright.commands import CreateRun
from stagewright.hosting import open_kernel, wait_for_run
from stagewright.kernel import Kernel
from stagewright.plugins import PluginSet
from stagewright.records import RunRecord, StepRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_host_node.demo.shown_story import show_story
from stagewright_host_node.demo.story import Story
from stagewright_host_node.demo.worker_process import WorkerProcess

__all__ = ["demo_command"]

_DIGEST: Final = "examples/digest/workflow.py:workflow"
# Not the name that other commands use by default: each demo begins with a new file.
_DATABASE: Final = "demo.db"
_PAUSE: Final = 0.15
_LOOK_EVERY: Final = 0.05
_PATIENCE: Final = 60.0
_STAGES_WITH_STEPS: Final = ("words", "links", "duplicates")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    target: str
    loaded: LoadedTarget
    folder: Path
    scratch: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{quote((self.scratch / _DATABASE).absolute().as_posix())}"


@click.command("demo")
@click.option("--workflow", "target", default=_DIGEST, show_default=True, help="The digest workflow.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="docs",
    show_default=True,
    help="The folder to digest.",
)
@click.option(
    "--scratch",
    type=click.Path(file_okay=False, path_type=Path),
    default="build/demo",
    show_default=True,
    help="Where the database, the logs and the report go.",
)
@click.pass_obj
def demo_command(plugins: PluginSet, target: str, folder: Path, scratch: Path) -> int:
    """Digest a folder, kill the worker with SIGKILL in the middle, and let another one end it.

    Run it from the root of the clone, where the digest workflow is.
    """
    plan = _Plan(target=target, loaded=load_target(target), folder=folder, scratch=scratch)
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        for suffix in ("", "-wal", "-shm"):
            (scratch / f"{_DATABASE}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise click.BadParameter(
            f"{error}; name a folder that can be written", param_hint="--scratch"
        ) from error
    story, run = asyncio.run(_performed(plan, plugins))
    if run.status is not Status.COMPLETED:
        raise click.ClickException(f"run {run.id} is {run.status}: {run.error}")
    print_stages(plan.loaded.choose(None), run, story.stages)
    show_story(story)
    again = story.run_again()
    if again:
        raise click.ClickException(
            f"{len(again)} finished steps ran again, such as {again[0].record.step_id!r}"
        )
    click.echo(f"None of the {len(story.before)} steps that had finished before the kill ran again.")
    print_output(run.output, whole=False, folder=Path.cwd())
    return 0


async def _performed(plan: _Plan, plugins: PluginSet) -> tuple[Story, RunRecord]:
    async with open_kernel(plan.loaded.registry, plan.url, plugins=plugins) as kernel:
        request = {"folder": str(plan.folder), "output": str(plan.scratch / "report.md")}
        config = {stage_id: {"pause": _PAUSE} for stage_id in _STAGES_WITH_STEPS}
        created = await kernel.dispatch(CreateRun(workflow_id="digest", input=request, config=config))
        click.echo(f"run {created.run_id} of digest, in {plan.url}")
        with ExitStack() as running:

            def start(name: str) -> tuple[WorkerProcess, datetime]:
                began = kernel.ports.clock.now()
                worker = WorkerProcess(name, plan.target, plan.url, plan.scratch / f"{name}.log")
                running.callback(worker.stop)
                click.echo(f"{name} started, process {worker.pid}")
                return worker, began

            first, began_at = start("worker-1")
            await _until(lambda: _is_in_the_middle(kernel, created.run_id, plan.folder), first)
            first.kill()
            killed_at = kernel.ports.clock.now()
            before = {
                step.id: step
                for steps in (await _steps(kernel, created.run_id)).values()
                for step in steps
                if step.status == "completed"
            }
            click.echo(f"{first.name} killed by SIGKILL after {len(before)} steps")
            second, taken_over_at = start("worker-2")
            run = await _ended(kernel, created.run_id, second)
            code = second.stop()
        click.echo(f"{second.name} ended the run, and left with exit code {code}")
        story = Story(
            began_at=began_at,
            killed_at=killed_at,
            taken_over_at=taken_over_at,
            ended_at=run.completed_at or kernel.ports.clock.now(),
            first=first.name,
            second=second.name,
            before=before,
            stages=await kernel.runs.stages(run.id),
            steps=await _steps(kernel, run.id),
        )
        return story, run


async def _is_in_the_middle(kernel: Kernel, run_id: str, folder: Path) -> bool:
    """Some steps of each stage are done, and one is under way."""
    run = await kernel.runs.get(run_id)
    if run is not None and run.status in TERMINAL_RUN_STATUSES:
        why = "" if run.error is None else f" ({run.error})"
        raise click.ClickException(
            f"the run was {run.status} before its worker could be killed{why}; "
            f"name a --folder with more text files than {folder}"
        )
    by_stage = await _steps(kernel, run_id)
    done = [sum(step.status == "completed" for step in steps) for steps in by_stage.values() if steps]
    under_way = any(step.status == "running" for steps in by_stage.values() for step in steps)
    return len(done) == len(_STAGES_WITH_STEPS) and min(done) >= 3 and under_way


async def _steps(kernel: Kernel, run_id: str) -> dict[str, list[StepRecord]]:
    steps: dict[str, list[StepRecord]] = {}
    for step in await kernel.runs.steps(run_id):
        steps.setdefault(step.stage_record_id, []).append(step)
    return steps


async def _ended(kernel: Kernel, run_id: str, worker: WorkerProcess) -> RunRecord:
    try:
        return await wait_for_run(kernel, run_id, timeout=_PATIENCE)
    except TimeoutError:
        raise _gave_up(worker) from None


async def _until(condition: Callable[[], Awaitable[Any]], worker: WorkerProcess) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            while not await condition():
                if worker.exit_code is not None:
                    raise _gave_up(worker)
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError:
        raise _gave_up(worker) from None


def _gave_up(worker: WorkerProcess) -> click.ClickException:
    state = "does not get on" if worker.exit_code is None else f"ended with exit code {worker.exit_code}"
    return click.ClickException(f"{worker.name} {state}; its last words:\n{worker.last_words()}")
