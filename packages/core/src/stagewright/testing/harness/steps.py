"""`harness.steps`: what steps answer, and what became of them."""

from typing import Any, Final

from stagewright.definitions.schema import Schema
from stagewright.errors import StepMockError, StepNotRecordedError
from stagewright.kernel import Kernel
from stagewright.records import ErrorRecord, StepRecord, StepStatus
from stagewright.runtime.claim_check import load_spilled
from stagewright.testing.harness.all_runs import all_run_ids
from stagewright.testing.harness.step_mocks import (
    ErrorMock,
    Mock,
    MockBook,
    ResultMock,
    SkipMock,
    TimeoutMock,
)

__all__ = ["HarnessSteps"]

_NO_ID: Final = "its id is the text that the body gives to ctx.step, and this is none"


class HarnessSteps:
    """The durable steps of all runs of a harness.

    A mock stands for a step until `clear_mocks`, in every run, in every stage unless one is named, and also after a
    retry or a redrive; what is already recorded stays. Of two mocks of one step the later counts, and one for a
    stage goes before one for all.
    """

    def __init__(self, kernel: Kernel, book: MockBook, run_ids: list[str]) -> None:
        self._kernel = kernel
        self._book = book
        self._run_ids = run_ids

    def mock_result(self, step_id: str, value: object, *, stage_id: str | None = None) -> None:
        """Let a step have this result instead of calling its function, or of waiting for its signal.

        Args:
            step_id: A step of `ctx.step.run`, `wait_for` or `wait_for_signal`.
            value: The result: a value of the step's type, or its JSON.
            stage_id: Only in this stage.

        Raises:
            StepMockError: If an id is none. Whatever else doesn't fit is raised by the tick in which a body asks.
        """
        self._add(step_id, stage_id, ResultMock(value))

    def mock_error(
        self,
        step_id: str,
        error: Exception | type[Exception],
        *,
        attempt: int | None = None,
        stage_id: str | None = None,
    ) -> None:
        """Let a step fail instead of calling its function.

        In `ctx.step.run` the error is raised in the function's place: it counts as one execution, and is tried again as
        often as the step's `retries` say. A `ctx.step.wait_for` has failed for good with it.

        Args:
            step_id: The step.
            error: What is raised.
            attempt: The last execution of the step that fails, from 1; later ones call the function. None is all.
            stage_id: Only in this stage.

        Raises:
            StepMockError: If an id is none, or the error or the attempt can't be one.
        """
        made: object = error
        if isinstance(error, type):
            try:
                made = error()
            except TypeError as refused:
                problem = f"{error.__name__} can't be made without arguments; give one that is made"
                raise StepMockError(step_id, problem) from refused
        if not isinstance(made, Exception):
            raise StepMockError(step_id, f"{error!r} is no exception")
        if attempt is not None and (isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1):
            raise StepMockError(step_id, f"attempt={attempt!r}; executions are counted from 1")
        self._add(step_id, stage_id, ErrorMock(made, attempt))

    def mock_timeout(self, step_id: str, *, stage_id: str | None = None) -> None:
        """Let a `ctx.step.wait_for` or `wait_for_signal` time out as soon as it is asked for.

        Raises:
            StepMockError: If an id is none.
        """
        self._add(step_id, stage_id, TimeoutMock())

    def skip_sleep(self, step_id: str, *, stage_id: str | None = None) -> None:
        """Let a `ctx.step.sleep` return at once, without time passing.

        Raises:
            StepMockError: If an id is none.
        """
        self._add(step_id, stage_id, SkipMock())

    def skip_sleeps(self) -> None:
        """Let every `ctx.step.sleep` return at once, without time passing."""
        self._book.all_slept = True

    def clear_mocks(self) -> None:
        """Forget all of them; what they answered stays recorded."""
        self._book.clear()

    def was_mocked(self, step_id: str, *, run_id: str | None = None, stage_id: str | None = None) -> bool:
        """Whether a mock has stood for a step."""
        return any(
            step_id == used_step and run_id in (None, used_run) and stage_id in (None, used_stage)
            for used_run, used_stage, used_step in self._book.used
        )

    async def records(
        self, step_id: str | None = None, *, run_id: str | None = None, stage_id: str | None = None
    ) -> list[StepRecord]:
        """The steps that bodies have asked for, by run, stage and the order in which they were first asked for."""
        found: list[StepRecord] = []
        run_ids = [run_id] if run_id is not None else await all_run_ids(self._kernel, self._run_ids)
        for one in run_ids:
            stages = {stage.id: stage.stage_id for stage in await self._kernel.runs.stages(one)}
            found += [
                step
                for step in await self._kernel.runs.steps(one)
                if step_id in (None, step.step_id) and stage_id in (None, stages.get(step.stage_record_id))
            ]
        return found

    async def record(
        self, step_id: str, *, run_id: str | None = None, stage_id: str | None = None
    ) -> StepRecord | None:
        """A step, of several with this id the one that changed last; None if no body has asked for it."""
        found = await self.records(step_id, run_id=run_id, stage_id=stage_id)
        return max(found, key=lambda step: (step.updated_at, step.created_at, step.id), default=None)

    async def status(
        self, step_id: str, *, run_id: str | None = None, stage_id: str | None = None
    ) -> StepStatus | None:
        """Whether a step is running, pending, completed or failed; None if no body has asked for it."""
        record = await self.record(step_id, run_id=run_id, stage_id=stage_id)
        return None if record is None else record.status

    async def result(
        self, step_id: str, *, type: Any = None, run_id: str | None = None, stage_id: str | None = None
    ) -> Any:
        """The result of a completed step, as JSON or as the given type.

        Raises:
            StepNotRecordedError: If it isn't completed.
        """
        record = await self.record(step_id, run_id=run_id, stage_id=stage_id)
        if record is None or record.status != "completed":
            raise StepNotRecordedError(step_id, None if record is None else record.status)
        claim = record.result_claim
        stored = record.result
        if claim is not None:
            stored = await load_spilled(self._kernel.ports.blob_store, claim)
        if type is None:
            return stored
        return Schema.of(type).load(stored, what=f"the result of step {step_id!r}")

    async def error(
        self, step_id: str, *, run_id: str | None = None, stage_id: str | None = None
    ) -> ErrorRecord | None:
        """Why a step failed; None if it didn't, or if no body has asked for it."""
        record = await self.record(step_id, run_id=run_id, stage_id=stage_id)
        return None if record is None else record.error

    def _add(self, step_id: str, stage_id: str | None, mock: Mock) -> None:
        checked = _checked(step_id)
        if stage_id is not None and (not isinstance(stage_id, str) or not stage_id):
            raise StepMockError(
                checked, f"stage_id={stage_id!r}; give the stage's id as text, or leave it out"
            )
        self._book.mocks[stage_id, checked] = mock


def _checked(step_id: object) -> str:
    if not isinstance(step_id, str) or not step_id:
        raise StepMockError(str(step_id), _NO_ID)
    return step_id
