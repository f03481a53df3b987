"""Errands: what a coroutine of another thread has done in the thread that serves."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from stagewright import StageContext, SyncKernel, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright.errors import CapabilityMissingError
from stagewright.hosting.errands import Errands

Begin = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """`begin(coroutine)`: run it in a thread with an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_errands_are_done_where_they_are_served_and_their_errors_raised_where_they_are_asked_for(
    begin: Begin,
) -> None:
    errands = Errands()

    def fail() -> None:
        raise LookupError("nowhere")

    async def ask() -> tuple[int, int]:
        with errands.asked_for():
            with pytest.raises(LookupError, match="nowhere"):
                await errands.do(fail)
            return await errands.do(threading.get_ident), threading.get_ident()

    served, asked = errands.serve(begin(ask()))
    assert served == threading.get_ident() != asked


def test_an_errand_of_who_has_given_up_is_not_done(begin: Begin) -> None:
    errands, done = Errands(), list[str]()

    async def ask() -> None:
        with errands.asked_for():
            given_up = asyncio.create_task(errands.do(lambda: done.append("too late")))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)

    asking = begin(ask())
    asking.result()
    errands.serve(asking)
    assert done == []


def test_a_coroutines_error_is_the_callers(begin: Begin) -> None:
    errands = Errands()

    async def ask() -> None:
        with errands.asked_for():
            raise LookupError("nowhere")

    with pytest.raises(LookupError, match="nowhere"):
        errands.serve(begin(ask()))


def test_an_interrupted_errand_cancels_who_asked_and_is_raised_by_who_served(begin: Begin) -> None:
    errands, told = Errands(), list[str]()

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def ask() -> None:
        with errands.asked_for():
            try:
                await errands.do(interrupt)
            except asyncio.CancelledError:
                # Whoever cleans up is still served.
                await errands.do(lambda: told.append("cleaned up"))
                raise

    with pytest.raises(KeyboardInterrupt):
        errands.serve(begin(ask()))
    assert told == ["cleaned up"]


def test_a_store_without_sessions_refuses_a_plain_one_too() -> None:
    async def echo(ctx: StageContext[int]) -> int:
        return ctx.input

    workflow = define_workflow("flow", input=int).pipe(define_stage("echo", echo)).build()
    with (
        SyncKernel(lambda: open_kernel(workflow, "memory://")) as kernel,
        pytest.raises(CapabilityMissingError, match="BorrowsSessions"),
    ):
        kernel.using(object()).dispatch(CreateRun("flow", 1))
    with pytest.raises(RuntimeError, match="closed"):
        kernel.using(object()).dispatch(CreateRun("flow", 1))
