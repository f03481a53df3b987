"""Workflows whose bodies meet mocks: the same structure, the same functions, another `ctx.step`."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from stagewright.definitions import Stage, Workflow
from stagewright.ports import EnumerableRegistry, WorkflowRegistry
from stagewright.runtime.blocking import BlockingContext
from stagewright.runtime.contexts import AsyncContext
from stagewright.testing.harness.mocked_ledger import MockedLedger
from stagewright.testing.harness.mocked_steps import MockedBlockingSteps, MockedSteps
from stagewright.testing.harness.step_mocks import BodyMocks, MockBook

__all__ = ["mocked_registry"]

F = TypeVar("F", bound=Callable[..., Any])


def mocked_registry(inner: WorkflowRegistry[Workflow], book: MockBook) -> WorkflowRegistry[Workflow]:
    """A registry of what another one has at the moment; it lists if the other one does."""
    if isinstance(inner, EnumerableRegistry):
        return _ListingRegistry(inner, book)
    return _Registry(inner, book)


class _Registry:
    def __init__(self, inner: WorkflowRegistry[Workflow], book: MockBook) -> None:
        self._inner = inner
        self._book = book
        self._mocked: dict[Workflow, Workflow] = {}

    def get(self, id: str) -> Workflow | None:
        workflow = self._inner.get(id)
        return None if workflow is None else self._with_mocks(workflow)

    def _with_mocks(self, workflow: Workflow) -> Workflow:
        mocked = self._mocked.get(workflow)
        if mocked is None:
            groups = tuple(
                tuple(_mocked_stage(one, self._book) for one in group) for group in workflow.groups
            )
            mocked = self._mocked[workflow] = replace(workflow, groups=groups)
        return mocked


class _ListingRegistry(_Registry):
    def list(self) -> Sequence[Workflow]:
        inner = cast("EnumerableRegistry[Workflow]", self._inner)
        return [self._with_mocks(workflow) for workflow in inner.list()]


def _mocked_stage(stage: Stage[Any, Any, Any], book: MockBook) -> Stage[Any, Any, Any]:
    check = stage.check_completion
    return replace(
        stage,
        execute=_with_mocked_steps(stage.execute, book),
        check_completion=None if check is None else _with_mocked_steps(check, book),
    )


def _with_mocked_steps(function: F, book: MockBook) -> F:
    """A body, or a check, which both take their context last."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        _mock_steps(arguments[-1], book)
        return function(*arguments)

    return cast(F, call)


def _mock_steps(ctx: AsyncContext | BlockingContext, book: MockBook) -> None:
    mocks = BodyMocks(book, ctx.run_id, ctx.stage_id)
    invocation = ctx._steps
    resources = invocation.resources
    if resources.step_ledger is not None:
        ledger = MockedLedger(resources.step_ledger, resources.clock, mocks)
        invocation.resources = replace(resources, step_ledger=ledger)
    if isinstance(ctx, BlockingContext):
        ctx.step = MockedBlockingSteps(invocation, ctx._portal, mocks)
    else:
        ctx.step = MockedSteps(invocation, mocks)
