"""What a test says that steps answer, and what it was asked for."""

from dataclasses import dataclass, field
from typing import TypeAlias

from stagewright.definitions.schema import Schema
from stagewright.errors import StagewrightError, StepMockError
from stagewright.json_values import Json
from stagewright.records import StepKind

__all__ = ["BodyMocks", "ErrorMock", "Mock", "MockBook", "ResultMock", "SkipMock", "TimeoutMock"]


@dataclass(frozen=True, slots=True)
class ResultMock:
    """The step has this result."""

    value: object


@dataclass(frozen=True, slots=True)
class ErrorMock:
    """The step fails with this, in its first so many executions; None is in all of them."""

    error: Exception
    executions: int | None = None


@dataclass(frozen=True, slots=True)
class TimeoutMock:
    """What the step waits for doesn't come in time."""


@dataclass(frozen=True, slots=True)
class SkipMock:
    """The sleep ends at once."""


Mock: TypeAlias = ResultMock | ErrorMock | TimeoutMock | SkipMock
_Place: TypeAlias = tuple[str | None, str]

_KINDS: dict[type[Mock], tuple[StepKind, ...]] = {
    ResultMock: ("run", "wait", "signal"),
    ErrorMock: ("run", "wait"),
    TimeoutMock: ("wait", "signal"),
    SkipMock: ("sleep",),
}
_WORDS: dict[type[Mock], str] = {
    ResultMock: "a result",
    ErrorMock: "an error",
    TimeoutMock: "a time-out",
    SkipMock: "skipping",
}
_CALLS: dict[StepKind, str] = {
    "run": "ctx.step.run",
    "wait": "ctx.step.wait_for",
    "signal": "ctx.step.wait_for_signal",
    "sleep": "ctx.step.sleep",
}


@dataclass(slots=True)
class MockBook:
    """All mocks of a harness.

    Attributes:
        mocks: By stage id, or None for every stage, and step id.
        all_slept: Whether every sleep ends at once.
        used: The stages and steps that were answered by a mock, each with its run.
        misuse: Mocks that could not be used, each told once.
    """

    mocks: dict[_Place, Mock] = field(default_factory=dict)
    all_slept: bool = False
    used: set[tuple[str, str, str]] = field(default_factory=set)
    misuse: list[StepMockError] = field(default_factory=list)

    def clear(self) -> None:
        """Forget what steps answer; what they answered stays."""
        self.mocks.clear()
        self.all_slept = False

    def raise_misuse(self) -> None:
        """Raise the first misuse that wasn't raised yet.

        Raises:
            StepMockError: If there is one.
        """
        if self.misuse:
            first, self.misuse = self.misuse[0], []
            raise first


@dataclass(frozen=True, slots=True)
class BodyMocks:
    """The mocks as one invocation of a body meets them."""

    book: MockBook
    run_id: str
    stage_id: str

    def of(self, step_id: str, kind: StepKind) -> Mock | None:
        """The mock of a step, which is used by this.

        Raises:
            StepMockError: If a step of this kind can't be mocked so.
        """
        places = ((self.stage_id, step_id), (None, step_id))
        mock = next((self.book.mocks[place] for place in places if place in self.book.mocks), None)
        if mock is None:
            return None
        if kind not in _KINDS[type(mock)]:
            takes = " or ".join(_CALLS[one] for one in _KINDS[type(mock)])
            problem = (
                f"{_WORDS[type(mock)]} is for {takes}, and stage {self.stage_id!r} asks by {_CALLS[kind]}"
            )
            raise self.misused(step_id, problem)
        return mock

    def is_slept(self, step_id: str) -> bool:
        """Whether a sleep ends at once.

        Raises:
            StepMockError: If a mock of another kind was made for it.
        """
        return self.of(step_id, "sleep") is not None or self.book.all_slept

    def note_used(self, step_id: str) -> None:
        """A mock has answered."""
        self.book.used.add((self.run_id, self.stage_id, step_id))

    def misused(self, step_id: str, problem: str) -> StepMockError:
        """Note a mock that can't be used, for the test to hear of; the body gets the same error."""
        error = StepMockError(step_id, problem)
        self.book.misuse.append(error)
        return error

    def as_result(self, step_id: str, schema: Schema[object], value: object) -> object:
        """A mocked result as the type that the step's results have; JSON may stand for it.

        Raises:
            StepMockError: If it doesn't fit.
        """
        what = f"the mocked result of step {step_id!r}"
        try:
            return schema.load(schema.accept(value, what=what), what=what)
        except StagewrightError as error:
            raise self.misused(step_id, str(error)) from error

    def check_payload(self, step_id: str, schema: Schema[object], value: object) -> None:
        """See that a mocked signal's payload is of the type that the body asks for.

        Raises:
            StepMockError: If it isn't.
        """
        payload = self.as_payload(step_id, value)
        try:
            schema.load(payload, what=f"the mocked payload of step {step_id!r}")
        except StagewrightError as error:
            raise self.misused(step_id, str(error)) from error

    def as_payload(self, step_id: str, value: object) -> Json:
        """A mocked signal's payload as JSON.

        Raises:
            StepMockError: If it has no exact JSON form.
        """
        what = f"the mocked payload of step {step_id!r}"
        try:
            return Schema.of(type(value)).accept(value, what=what)
        except StagewrightError as error:
            raise self.misused(step_id, str(error)) from error
