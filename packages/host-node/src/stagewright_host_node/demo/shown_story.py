"""The story of the demo, for people: a table of the steps and a timeline."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from stagewright.cli.console import output_console, plain_table
from stagewright_host_node.demo.story import Story, ToldStep

__all__ = ["show_story", "timeline"]

_WIDTH = 64


def show_story(story: Story) -> None:
    """Print which steps ran where and how often, and when."""
    console = output_console()
    told = story.told()
    console.print(
        plain_table(
            ("stage", "recorded by", "steps", "bodies begun", "what that means"), list(_summary(story, told))
        )
    )
    cut_off = [step for step in told if step.was_cut_off]
    if cut_off:
        console.print(
            "Under way when the worker was killed, so begun a second time with the same external key:"
        )
        console.print(
            plain_table(
                ("stage", "step", "bodies begun", "external key"),
                [
                    (
                        step.stage_id,
                        step.record.step_id,
                        str(step.record.attempt),
                        step.record.external_key or "",
                    )
                    for step in cut_off
                ],
            )
        )
    for line in timeline(story):
        console.print(line)


def _summary(story: Story, told: list[ToldStep]) -> Iterator[tuple[str, str, str, str, str]]:
    for stage in story.stages:
        for worker in (story.first, story.second):
            steps = [step for step in told if step.stage_id == stage.stage_id and step.worker == worker]
            if not steps:
                continue
            begun = Counter(step.record.attempt for step in steps)
            shown = ", ".join(f"{count} × {times}" for times, count in sorted(begun.items()))
            means = "finished before the kill, and not run again" if worker == story.first else "taken over"
            yield stage.stage_id, worker, str(len(steps)), shown, means


def timeline(story: Story) -> Iterator[str]:
    """One line for each worker and stage; every mark is a step that was recorded."""
    whole = max((story.ended_at - story.began_at).total_seconds(), 0.001)

    def column(moment: datetime) -> int:
        place = (moment - story.began_at).total_seconds() / whole
        return min(_WIDTH - 1, max(0, int(place * _WIDTH)))

    label = max(map(len, (story.first, story.second, *(stage.stage_id for stage in story.stages)))) + 2
    killed = column(story.killed_at)
    yield f"{'':<{label}}{'0 s':<{_WIDTH - 6}}{whole:5.1f} s"
    yield f"{story.first:<{label}}{'━' * killed}✗ SIGKILL"
    taken = column(story.taken_over_at)
    yield f"{story.second:<{label}}{' ' * taken}{'━' * (_WIDTH - taken)}"
    told = story.told()
    for stage in story.stages:
        cells = [" "] * _WIDTH
        if stage.started_at is not None and stage.completed_at is not None:
            for place in range(column(stage.started_at), column(stage.completed_at) + 1):
                cells[place] = "·"
        for step in told:
            if step.stage_id == stage.stage_id:
                cells[column(step.record.updated_at)] = "▪"
        yield f"{stage.stage_id:<{label}}{''.join(cells)}".rstrip()
