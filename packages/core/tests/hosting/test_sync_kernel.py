import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright.commands import CancelRun, CreateRun, CreateRunResult
from stagewright.definitions import StageContext, define_workflow, stage
from stagewright.errors import (
    InvalidInputError,
    InvalidSettingError,
    RunNotFoundError,
    UnknownSchemeError,
    UnknownWorkflowError,
)
from stagewright.hosting.assembly import open_kernel
from stagewright.hosting.drive import drive_run
from stagewright.hosting.sync_kernel import SyncKernel
from stagewright.kernel import Kernel
from stagewright.plugins import PluginSet
from stagewright.status import Status


class Number(BaseModel):
    value: int


@stage("double")
async def double(ctx: StageContext[Number]) -> Number:
    return Number(value=2 * ctx.input.value)


workflow = define_workflow("doubling", input=Number).pipe(double).build()


def in_memory() -> AbstractAsyncContextManager[Kernel]:
    return open_kernel(workflow, "memory://", plugins=PluginSet())


@pytest.fixture
def kernel() -> Iterator[SyncKernel]:
    with SyncKernel(in_memory) as kernel:
        yield kernel


def test_commands_are_dispatched_without_a_loop(kernel: SyncKernel) -> None:
    created: CreateRunResult = kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 21}))
    run = kernel.call(lambda inner: drive_run(inner, created.run_id))
    assert (run.status, run.output) == (Status.COMPLETED, {"value": 42})


def test_a_dict_is_a_command(kernel: SyncKernel) -> None:
    created = kernel.dispatch({"type": "run.create", "workflow_id": "doubling", "input": {"value": 1}})
    assert isinstance(created, CreateRunResult)


def test_errors_come_through_as_they_are(kernel: SyncKernel) -> None:
    with pytest.raises(UnknownWorkflowError) as caught:
        kernel.dispatch(CreateRun(workflow_id="gone", input={}))
    assert caught.value.workflow_id == "gone"
    with pytest.raises(InvalidInputError):
        kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": "x"}))
    with pytest.raises(RunNotFoundError):
        kernel.call(lambda inner: drive_run(inner, "gone"))
    assert not kernel.dispatch(CancelRun("gone")).cancelled


def test_several_threads_share_one(kernel: SyncKernel) -> None:
    def create(value: int) -> str:
        return kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": value})).run_id

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(create, range(100)))
    assert len(ids) == 100


async def test_it_may_be_used_beside_a_running_loop(kernel: SyncKernel) -> None:
    created = await asyncio.to_thread(kernel.dispatch, CreateRun(workflow_id="doubling", input={"value": 1}))
    assert created.status is Status.PENDING


def test_a_kernel_that_can_not_be_opened_says_why() -> None:
    with pytest.raises(UnknownSchemeError):
        SyncKernel(lambda: open_kernel(workflow, "nowhere://", plugins=PluginSet()))


async def no_manager() -> None: ...


@pytest.mark.parametrize("factory", [5, None, in_memory(), lambda: None, no_manager, lambda: in_memory])
def test_what_opens_no_kernel_is_told(factory: Any) -> None:
    with pytest.raises(InvalidSettingError, match="as in SyncKernel") as caught:
        SyncKernel(factory)
    assert caught.value.setting == "kernel_factory"


def closing_with(note: Callable[[], None]) -> Callable[[], AbstractAsyncContextManager[Kernel]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Kernel]:
        async with in_memory() as kernel:
            yield kernel
        note()

    return opened


def test_closing_waits_for_work_closes_the_kernel_and_ends_the_thread() -> None:
    order: list[str] = []
    started = threading.Event()
    kernel = SyncKernel(closing_with(lambda: order.append("closed")))

    async def slow(inner: Kernel) -> None:
        started.set()
        await asyncio.sleep(0.2)
        order.append("worked")

    worker = threading.Thread(target=lambda: kernel.call(slow))
    worker.start()
    started.wait()
    kernel.close()
    worker.join()
    assert order == ["worked", "closed"]
    assert "stagewright-kernel" not in [thread.name for thread in threading.enumerate()]

    kernel.close()
    with pytest.raises(RuntimeError, match="is closed"):
        kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1}))


def test_an_error_while_closing_is_raised() -> None:
    def fail() -> None:
        raise ConnectionError("the pool is stuck")

    with pytest.raises(ConnectionError, match="the pool is stuck"), SyncKernel(closing_with(fail)):
        pass


def test_its_own_thread_gets_an_error_instead_of_waiting_for_itself(kernel: SyncKernel) -> None:
    async def confused(inner: Kernel) -> None:
        kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1}))

    with pytest.raises(RuntimeError, match="its own thread"):
        kernel.call(confused)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system doesn't fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_gets_a_plain_error(kernel: SyncKernel) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1}))
        except RuntimeError as error:
            os.write(writing, str(error).encode())
        finally:
            kernel.close()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        assert "before the process forked" in pipe.read()
    os.waitpid(child, 0)
    assert kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1})).run_id


@pytest.mark.skipif(sys.platform == "win32", reason="signals work another way there")
def test_an_interrupted_caller_leaves_no_work_behind(kernel: SyncKernel) -> None:
    cancelled = threading.Event()

    async def endless(inner: Kernel) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        kernel.call(endless)
    assert cancelled.wait(5)
