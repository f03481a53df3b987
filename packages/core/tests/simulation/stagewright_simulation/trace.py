"""A simulation as people read it."""

from collections.abc import Iterator

from stagewright_simulation.scenario import Scenario, StageSpec, StepSpec, WorkflowSpec
from stagewright_simulation.simulate import Outcome

__all__ = ["described", "report"]


def report(outcome: Outcome, *, smaller: Outcome | None = None) -> str:
    """What a simulation was made of, what happened, and what is broken.

    Args:
        outcome: Of the seed itself.
        smaller: What it shrank to; its story is told then.
    """
    shown = smaller or outcome
    seed = outcome.scenario.seed
    lines = [f"seed {seed} breaks {', '.join(outcome.broken) or 'nothing'}"]
    lines += [f"  {violation}" for violation in outcome.violations[:10]]
    if smaller is not None and smaller is not outcome:
        lines.append(f"it shrinks to a scenario that breaks {', '.join(smaller.broken)}")
        lines += [f"  {violation}" for violation in smaller.violations[:10]]
    lines += described(shown.scenario)
    lines += [f"{at:10.3f}  {who:<14} {what}" for at, who, what in shown.story]
    lines.append(f"the same again: nox -s simulate -- 1 {seed}")
    return "\n".join(lines)


def described(scenario: Scenario) -> Iterator[str]:
    """What a scenario is made of, line by line."""
    yield f"{scenario.topology}"
    yield (
        f"chaos for {scenario.chaos} s, new versions at {scenario.deploy_at}, blackout {scenario.blackout}, "
        f"jobs at most {scenario.absolute_timeout or '-'} s, calls at most {scenario.slowness or '-'} s"
    )
    for workflow in (*scenario.workflows, *scenario.newer):
        yield from _workflow(workflow)
    for role, clock in scenario.clocks.items():
        if clock.offset or clock.drift:
            yield f"the clock of {role} is {clock.offset:.3f} s ahead and gains {clock.drift:.6f}"
    for action in scenario.actions:
        yield f"{action.at:10.3f}  {action.kind} of run {action.run} {action.workflow} {action.stage} {action.step}"
    yield from map(str, scenario.faults)


def _workflow(workflow: WorkflowSpec) -> Iterator[str]:
    yield f"workflow {workflow.id}"
    for number, group in enumerate(workflow.groups, start=1):
        for stage in group:
            yield f"  group {number}, {_stage(stage)}"
            for item in stage.items:
                yield "    " + " and ".join(_step(step) for step in item)


def _stage(stage: StageSpec) -> str:
    words = [f"stage {stage.id}", "batch" if stage.is_batch else "", f"fails {stage.fails} times"]
    words += ["for good" if stage.is_fatal else "", "big" if stage.is_big else ""]
    words += [f"{stage.max_attempts} attempts", f"{stage.max_worker_losses} losses", f"delay {stage.delay}"]
    words.append(f"at most {stage.timeout:.1f} s" if stage.timeout is not None else "")
    return ", ".join(word for word in words if word)


def _step(step: StepSpec) -> str:
    words = [f"{step.id} {step.seconds} s", f"{step.retries} retries", f"fails {step.fails} times"]
    words += ["for good" if step.is_fatal else "", "big" if step.is_big else ""]
    words += [
        f"lease {step.lease}" if step.lease else "",
        "" if step.on_reclaim == "rerun" else "fails on reclaim",
    ]
    return "(" + ", ".join(word for word in words if word) + ")"
