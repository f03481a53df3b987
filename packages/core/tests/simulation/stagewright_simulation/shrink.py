"""Leaving out of a failing scenario what its failure doesn't need."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from stagewright_simulation.scenario import Scenario
from stagewright_simulation.simulate import Outcome, run_scenario

__all__ = ["shrink"]


def shrink(
    outcome: Outcome, *, most: int = 150, run: Callable[[Scenario], Outcome] = run_scenario
) -> Outcome:
    """The outcome of a smaller scenario that breaks one of the same promises.

    Args:
        outcome: Of a scenario that breaks some.
        most: How many scenarios are tried.
        run: How one is.
    """
    wanted = set(outcome.broken)
    tried = 0
    best = outcome
    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        for smaller in _smaller(best.scenario):
            if tried >= most:
                return best
            tried += 1
            found = run(smaller)
            if wanted & set(found.broken):
                best, has_shrunk = found, True
                break
    return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with less in them, those with much less first."""
    yield from _fewer_faults(scenario)
    yield from _fewer_actions(scenario)
    if scenario.clocks:
        yield replace(scenario, clocks={})
        for role in scenario.clocks:
            yield replace(
                scenario, clocks={name: one for name, one in scenario.clocks.items() if name != role}
            )
    if scenario.deploy_at is not None:
        yield replace(scenario, deploy_at=None, newer=())
    if scenario.blackout:
        yield replace(scenario, blackout=False)
    if scenario.slowness:
        yield replace(scenario, slowness=0.0)
    if scenario.absolute_timeout:
        yield replace(scenario, absolute_timeout=0.0)
    yield from _fewer_workflows(scenario)
    yield from _fewer_stages(scenario)
    yield from _fewer_steps(scenario)


def _fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    faults = scenario.faults
    half = len(faults) // 2
    if half:
        yield replace(scenario, faults=faults[half:])
        yield replace(scenario, faults=faults[:half])
    for number in range(len(faults)):
        yield replace(scenario, faults=(*faults[:number], *faults[number + 1 :]))


def _fewer_actions(scenario: Scenario) -> Iterator[Scenario]:
    actions = scenario.actions
    for run in sorted({action.run for action in actions}):
        left = tuple(action for action in actions if action.run != run)
        if left:
            yield replace(scenario, actions=left)
    for number, action in enumerate(actions):
        if action.kind != "create":
            yield replace(scenario, actions=(*actions[:number], *actions[number + 1 :]))


def _fewer_workflows(scenario: Scenario) -> Iterator[Scenario]:
    used = {action.workflow for action in scenario.actions}
    workflows = tuple(workflow for workflow in scenario.workflows if workflow.id in used)
    if workflows and not scenario.newer and len(workflows) < len(scenario.workflows):
        yield replace(scenario, workflows=workflows)


def _fewer_stages(scenario: Scenario) -> Iterator[Scenario]:
    """Without the last groups, and without one stage of a group; new versions are left as they are."""
    if scenario.newer:
        return
    for number, workflow in enumerate(scenario.workflows):
        fewer = [workflow.groups[:most] for most in range(1, len(workflow.groups))]
        for g, group in enumerate(workflow.groups):
            for s in range(len(group) if len(group) > 1 else 0):
                smaller = (*group[:s], *group[s + 1 :])
                fewer.append((*workflow.groups[:g], smaller, *workflow.groups[g + 1 :]))
        for groups in fewer:
            changed = replace(workflow, groups=groups)
            yield replace(
                scenario, workflows=(*scenario.workflows[:number], changed, *scenario.workflows[number + 1 :])
            )


def _fewer_steps(scenario: Scenario) -> Iterator[Scenario]:
    """Without one item of one stage; new versions are left as they are."""
    if scenario.newer:
        return
    for w, workflow in enumerate(scenario.workflows):
        for g, group in enumerate(workflow.groups):
            for s, stage in enumerate(group):
                for i in range(len(stage.items)):
                    fewer = replace(stage, items=(*stage.items[:i], *stage.items[i + 1 :]))
                    groups = (
                        *workflow.groups[:g],
                        (*group[:s], fewer, *group[s + 1 :]),
                        *workflow.groups[g + 1 :],
                    )
                    changed = replace(workflow, groups=groups)
                    yield replace(
                        scenario, workflows=(*scenario.workflows[:w], changed, *scenario.workflows[w + 1 :])
                    )
