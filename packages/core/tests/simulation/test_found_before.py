"""Scenarios in which a promise was broken before, as small as they became."""

import pytest

from stagewright_simulation.faults import DeliveryFault, PortFault, TimedFault
from stagewright_simulation.scenario import (
    Action,
    ClockSpec,
    Scenario,
    StageSpec,
    StepSpec,
    Topology,
    WorkflowSpec,
)
from stagewright_simulation.simulate import run_scenario
from stagewright_simulation.trace import report


def of_one_stage(stage: StageSpec) -> tuple[WorkflowSpec, ...]:
    return (WorkflowSpec(id="flow-a", groups=((stage,),)),)


# A delivery comes again when the stage that it began waits and is due: it took up the stage without its job, and
# nobody looked after the run any more.
AN_OLD_DELIVERY = Scenario(
    seed=137,
    topology=Topology(flushers=0),
    workflows=of_one_stage(
        StageSpec(
            id="s2",
            items=(
                (StepSpec(id="signal-b0", kind="signal", seconds=35.83, lease=5.0),),
                (StepSpec(id="signal-c0", kind="signal", seconds=26.7),),
            ),
            fails=1,
            max_attempts=1,
            max_worker_losses=5,
            delay=10.0,
        )
    ),
    actions=(Action(at=28.09, kind="create", run=2, workflow="flow-a"),),
    faults=(
        DeliveryFault(role="worker-0", nth=3, to="worker-1", delay=7.89),
        PortFault(role="worker-1", moment="update_stage", nth=1, kind="crash", length=39.07),
    ),
    clocks={"worker-0": ClockSpec(offset=-54.98171799824538, drift=0.00020320546460667055)},
    chaos=106.4,
)

# The clock of a process that looks after runs is set six minutes ahead: to it a living worker looked long lost, and it
# ended the run.
A_CLOCK_THAT_IS_AHEAD = Scenario(
    seed=387,
    topology=Topology(maintainers=2, flushers=0),
    workflows=of_one_stage(
        StageSpec(
            id="s1",
            items=(
                (
                    StepSpec(id="signal-b0", kind="signal", seconds=20.68, is_fatal=True),
                    StepSpec(id="wait-b1", kind="wait", seconds=46.26),
                    StepSpec(id="sleep-b2", kind="sleep", seconds=24.63, retries=2, fails=1),
                ),
            ),
            max_attempts=1,
            max_worker_losses=2,
            delay=4.0,
        )
    ),
    actions=(Action(at=30.97, kind="create", run=1, workflow="flow-a", is_big=True),),
    faults=(TimedFault(at=46.99, kind="jump", role="upkeep-1", amount=366.35),),
    chaos=52.7,
)

FOUND = {"an old delivery": AN_OLD_DELIVERY, "a clock that is ahead": A_CLOCK_THAT_IS_AHEAD}


@pytest.mark.parametrize("scenario", FOUND.values(), ids=FOUND.keys())
def test_what_was_broken_before_is_not_any_more(scenario: Scenario) -> None:
    outcome = run_scenario(scenario)
    assert not outcome.violations, report(outcome)
    # The fault did come about, so that the promise is put to the test.
    assert any("once more" in what or "clock set" in what for _, _, what in outcome.story)
