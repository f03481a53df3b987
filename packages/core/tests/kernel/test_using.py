"""`Kernel.using`: which persistences can, and that nothing is tried again in a transaction of the caller's."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.commands import CreateRun
from stagewright.errors import (
    CapabilityMissingError,
    KernelClosedError,
    StagewrightError,
    StaleVersionError,
    TransientError,
)
from stagewright.memory import InMemoryDatabase, InMemoryPersistence
from stagewright.ports import CallersThread

MakeKernel = Callable[..., Kernel]


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


class LendingPersistence(InMemoryPersistence):
    """Says that it works on the caller's session, and fails there as often as it is told."""

    def __init__(self, database: InMemoryDatabase, error: StagewrightError) -> None:
        super().__init__(database)
        self.error = error
        self.tries = 0

    def borrow(self, session: object, thread: CallersThread | None = None) -> Self:
        return self

    @asynccontextmanager
    async def _failing(self) -> AsyncIterator[Self]:
        self.tries += 1
        async with super().transaction() as tx:
            yield tx
            raise self.error

    def transaction(self) -> Any:  # Any: as the port's, which knows the type better
        return self._failing()


async def test_a_store_without_sessions_is_refused_by_name(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow]
) -> None:
    kernel = make_kernel(flow_of(echo))
    with pytest.raises(
        CapabilityMissingError, match=r"InMemoryPersistence doesn't offer BorrowsSessions"
    ) as refusal:
        kernel.using(object())
    assert "your own SQL database" in refusal.value.fix


@pytest.mark.guarantee("kernel.nothing-tried-again-in-callers-transactions")
@pytest.mark.parametrize(
    "error",
    [StaleVersionError("run", "r", 1, 2), TransientError("a conflict")],
    ids=lambda error: type(error).__name__,
)
async def test_a_conflict_reaches_the_caller_at_once_and_says_what_to_do(
    make_kernel: MakeKernel,
    flow_of: Callable[..., Workflow],
    database: InMemoryDatabase,
    error: StagewrightError,
) -> None:
    persistence = LendingPersistence(database, error)
    flow = flow_of(echo)
    kernel = make_kernel(flow, persistence=persistence)
    with pytest.raises(type(error)) as refusal:
        await kernel.using(object()).dispatch(CreateRun(flow.id, 1))
    assert persistence.tries == 1
    assert any("do all of it anew" in note for note in refusal.value.__notes__)
    with pytest.raises(type(error)):
        await kernel.dispatch(CreateRun(flow.id, 1))
    assert persistence.tries == 1 + 3


async def test_a_closed_kernel_is_bound_to_nothing(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow], database: InMemoryDatabase
) -> None:
    kernel = make_kernel(flow_of(echo), persistence=LendingPersistence(database, TransientError("")))
    bound = kernel.using(object())
    kernel.close()
    with pytest.raises(KernelClosedError):
        kernel.using(object())
    with pytest.raises(KernelClosedError):
        await bound.dispatch(CreateRun("flow", 1))
