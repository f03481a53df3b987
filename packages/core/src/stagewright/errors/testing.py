"""What tests of workflows may be told."""

from dataclasses import dataclass

from stagewright.errors.root import StagewrightError

__all__ = [
    "HarnessBusyError",
    "HarnessStalledError",
    "ShadowIncompatibleError",
    "StepMockError",
    "StepNotRecordedError",
    "UnexpectedStatusError",
]


@dataclass(eq=False)
class HarnessBusyError(StagewrightError):
    """A tick of a harness was asked for by somebody whom the tick that is being made would wait for, or in its way.

    Attributes:
        problem: Who asked, and the fix.
    """

    problem: str

    def __str__(self) -> str:
        return f"the harness is in the middle of a tick: {self.problem}"


@dataclass(eq=False)
class HarnessStalledError(StagewrightError):
    """A harness was to go on until something is so, and it isn't.

    Attributes:
        awaited: What was waited for.
        problem: Why it went no further.
        ticks: How many ticks it made.
        timeline: What happened to each run that it follows, for people to read.
    """

    awaited: str
    problem: str
    ticks: int
    timeline: str

    def __str__(self) -> str:
        return f"{self.awaited}, and after {self.ticks} ticks {self.problem}\n{self.timeline}"


@dataclass(eq=False)
class UnexpectedStatusError(StagewrightError, AssertionError):
    """A run in a test ended in another status than the test expects.

    Attributes:
        run_id: The run.
        status: How it ended.
        expected: How it should have.
        timeline: What happened to it, for people to read.
    """

    run_id: str
    status: str
    expected: str
    timeline: str

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status}, and {self.expected} is expected\n{self.timeline}"


@dataclass(eq=False)
class StepMockError(StagewrightError):
    """A mock can't stand for the step that it was made for.

    Attributes:
        step_id: The step.
        problem: Why not, and the fix.
    """

    step_id: str
    problem: str

    def __str__(self) -> str:
        return f"the mock of step {self.step_id!r} can't be used: {self.problem}"


@dataclass(eq=False)
class StepNotRecordedError(StagewrightError):
    """The result of a step was asked for that has none.

    Attributes:
        step_id: The step.
        status: What it is; None if no body has asked for it.
    """

    step_id: str
    status: str | None

    def __str__(self) -> str:
        state = "no body has asked for it" if self.status is None else f"it is {self.status}"
        return f"step {self.step_id!r} has no result: {state}"


@dataclass(eq=False)
class ShadowIncompatibleError(StagewrightError, AssertionError):
    """A candidate build can't carry on all of the runs that it was held against.

    Attributes:
        failures: One line for each version or run that it can't, with what is in the way.
    """

    failures: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"the candidate can't carry on {len(self.failures)} of them:", *self.failures])
