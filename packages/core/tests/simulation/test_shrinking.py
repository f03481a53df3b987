"""A failing scenario loses what its failure doesn't need, and what is left is told."""

from dataclasses import replace

from stagewright_simulation.faults import TimedFault
from stagewright_simulation.generate import generate
from stagewright_simulation.history import Violation
from stagewright_simulation.scenario import Scenario
from stagewright_simulation.shrink import shrink
from stagewright_simulation.simulate import Outcome
from stagewright_simulation.trace import report


def outcome_of(scenario: Scenario, *, fails: bool) -> Outcome:
    violations = (Violation("events-delivered", "event 3 never got out"),) if fails else ()
    return Outcome(
        scenario=scenario,
        violations=violations,
        story=((1.5, "worker-0.1", "crashes, for 3 s"),),
        fingerprint=0,
        calls=1,
        seconds=2.0,
    )


def scenario_with_much_in_it() -> Scenario:
    return next(
        scenario
        for scenario in map(generate, range(200))
        if len(scenario.faults) > 6 and len(scenario.actions) > 6 and not scenario.newer
    )


def run(scenario: Scenario) -> Outcome:
    """One fault and one run are to blame."""
    blamed = any(isinstance(fault, TimedFault) and fault.amount == 4711 for fault in scenario.faults)
    return outcome_of(scenario, fails=blamed and any(action.run == 0 for action in scenario.actions))


def test_what_is_left_is_what_the_failure_needs() -> None:
    scenario = scenario_with_much_in_it()
    culprit = TimedFault(at=1.0, kind="jump", role="worker-0", amount=4711)
    scenario = replace(scenario, faults=(*scenario.faults, culprit), blackout=True)
    smallest = shrink(run(scenario), most=1000, run=run).scenario
    assert smallest.faults == (culprit,)
    assert [action.kind for action in smallest.actions] == ["create"]
    assert {action.run for action in smallest.actions} == {0}
    assert (smallest.blackout, smallest.clocks) == (False, {})
    assert not any(stage.items for flow in smallest.workflows for group in flow.groups for stage in group)


def test_another_failure_is_not_the_same() -> None:
    scenario = scenario_with_much_in_it()
    failing = outcome_of(scenario, fails=True)
    assert shrink(failing, run=lambda smaller: outcome_of(smaller, fails=False)) is failing


def test_a_report_names_the_promise_the_story_and_how_to_have_it_again() -> None:
    scenario = scenario_with_much_in_it()
    told = report(outcome_of(scenario, fails=True))
    assert told.splitlines()[0] == f"seed {scenario.seed} breaks events-delivered"
    assert "event 3 never got out" in told
    assert "worker-0.1     crashes, for 3 s" in told
    assert f"nox -s simulate -- 1 {scenario.seed}" in told
