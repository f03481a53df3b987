import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stagewright import Kernel, Status, open_kernel
from stagewright.commands import CreateRun, SignalStep
from stagewright.hosting import wait_for_run
from stagewright.records import RunRecord

HERE = Path(__file__).resolve().parent
ORDER = {"order_id": "17", "customer": "Ada", "lines": ["9.90", "0.10"]}
PATIENCE = 60


class Shop:
    """A provider, workers and a database, each of which may be killed and started anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'orders.db'}"
        self.hold = folder / "hold"
        self._started: list[subprocess.Popen[str]] = []
        self._port = 0
        self.provider = self.start_provider()

    def start_provider(self) -> "subprocess.Popen[str]":
        """On the port that it had before, if it ran before."""
        arguments = [str(HERE.parent / "provider.py"), str(self._port), str(self.folder)]
        provider = self._start(arguments, stdout=subprocess.PIPE)
        assert provider.stdout is not None
        self._port = int(provider.stdout.readline().rsplit(" ", 1)[-1])
        return provider

    def start_worker(self) -> "subprocess.Popen[str]":
        return self._start([str(HERE / "worker.py"), self.url])

    def charges(self) -> list[tuple[str, int]]:
        """Whom the provider has charged, and how often it was asked to by the same key."""
        with sqlite3.connect(self.folder / "provider.db") as books:
            return books.execute("SELECT customer, asked FROM charges").fetchall()

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, arguments: list[str], **options: Any) -> "subprocess.Popen[str]":
        environment = dict(os.environ) | {"ORDERS_PROVIDER": f"http://127.0.0.1:{self._port}"}
        process = subprocess.Popen([sys.executable, *arguments], env=environment, text=True, **options)
        self._started.append(process)
        return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.close()


@pytest.fixture
def example() -> ModuleType:
    spec = spec_from_file_location("orders_workflow", HERE.parent / "workflow.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["orders_workflow"] = module
    spec.loader.exec_module(module)
    return module


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)


async def order(kernel: Kernel, **fields: Any) -> str:
    return (await kernel.dispatch(CreateRun("orders", ORDER | fields))).run_id


async def check_paid_once(kernel: Kernel, run_id: str, shop: Shop, *, asked: int) -> RunRecord:
    run = await wait_for_run(kernel, run_id, timeout=PATIENCE)
    assert run.status is Status.COMPLETED, run.error
    assert isinstance(run.output, dict)
    assert run.output["total"] == "10.00"
    assert shop.charges() == [("Ada", asked)]
    return run


async def test_an_order_is_paid_and_shipped(shop: Shop, example: ModuleType) -> None:
    async with open_kernel(example.workflow, shop.url) as kernel:
        run_id = await order(kernel)
        shop.start_worker()
        run = await check_paid_once(kernel, run_id, shop, asked=1)
        steps = {step.step_id: step for step in await kernel.runs.steps(run.id)}
        assert {name: step.status for name, step in steps.items()} == {
            "charge": "completed",
            "settled": "completed",
        }


@pytest.mark.guarantee("steps.external-keys-close-the-gap")
async def test_a_worker_that_is_killed_after_the_charge_charges_nobody_twice(
    shop: Shop, example: ModuleType
) -> None:
    async with open_kernel(example.workflow, shop.url) as kernel:
        shop.hold.touch()
        run_id = await order(kernel)
        victim = shop.start_worker()
        await eventually(lambda: shop.charges() == [("Ada", 1)])
        kill(victim)
        shop.hold.unlink()
        shop.start_worker()
        run = await check_paid_once(kernel, run_id, shop, asked=2)
        (charge, _) = await kernel.runs.steps(run.id)
        assert (charge.attempt, charge.status) == (2, "completed")


@pytest.mark.guarantee("steps.external-keys-close-the-gap")
async def test_a_provider_that_is_killed_after_the_charge_charges_nobody_twice(
    shop: Shop, example: ModuleType
) -> None:
    async with open_kernel(example.workflow, shop.url) as kernel:
        shop.hold.touch()
        run_id = await order(kernel)
        shop.start_worker()
        await eventually(lambda: shop.charges() == [("Ada", 1)])
        kill(shop.provider)
        shop.hold.unlink()
        await asyncio.sleep(0.5)
        shop.start_provider()
        run = await check_paid_once(kernel, run_id, shop, asked=2)
        assert [stage.attempt for stage in await kernel.runs.stages(run.id)] == [1, 1, 1, 1]


async def test_a_large_order_waits_for_its_approval(shop: Shop, example: ModuleType) -> None:
    async with open_kernel(example.workflow, shop.url) as kernel:
        config = {"approve": {"above": "5"}}
        run_id = (await kernel.dispatch(CreateRun("orders", ORDER, config=config))).run_id
        shop.start_worker()

        async def waits() -> bool:
            return [step.step_id for step in await kernel.runs.steps(run_id)] == ["approval"]

        await eventually(waits)
        assert shop.charges() == []
        answer = await kernel.dispatch(SignalStep(run_id, "approve", "approval", payload={"by": "Grace"}))
        assert answer.delivered
        run = await check_paid_once(kernel, run_id, shop, asked=1)
        assert isinstance(run.output, dict)
        assert run.output["approved_by"] == "Grace"
