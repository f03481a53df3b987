"""A worker is frozen for longer than its lease, and thawed when another one has taken over."""

import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, Status
from stagewright.commands import CreateRun

pytestmark = pytest.mark.slow

_SHORT_LEASES = {
    "stale_lease_threshold": "2s",
    "job_heartbeat_interval": "0.5s",
    "orchestration_interval": "0.5s",
}


@pytest.mark.guarantee("hosts.frozen-worker-refused")
async def test_what_a_thawed_worker_writes_late_is_refused_and_it_goes_on(
    workers: Any, open_observer: Callable[[list[str]], Awaitable[Kernel]]
) -> None:
    kernel = await open_observer(["flow", "other"])
    run_id = (await kernel.dispatch(CreateRun("flow", 1))).run_id
    frozen = workers.start("frozen", ["flow", "other"], seconds=3.0, host=_SHORT_LEASES)
    await workers.until(lambda: workers.told(charge=...), "the step begins")
    workers.freeze(frozen)
    workers.start("taker", ["flow"], host=_SHORT_LEASES)
    await workers.until(lambda: _is(kernel, run_id, Status.COMPLETED), "the other one ends the run")
    stages, steps = await kernel.runs.stages(run_id), await kernel.runs.steps(run_id)
    told = await kernel.runs.events(run_id)

    frozen.send(signal.SIGCONT)
    other_id = (await kernel.dispatch(CreateRun("other", 5))).run_id
    await workers.until(lambda: _is(kernel, other_id, Status.COMPLETED), "the thawed one does other work")

    # Nothing of the run that was taken from it has changed.
    assert await kernel.runs.stages(run_id) == stages
    assert await kernel.runs.steps(run_id) == steps
    assert [event.type for event in await kernel.runs.events(run_id)] == [event.type for event in told]
    charges = workers.told(charge=..., workflow="flow")
    assert [charge["worker"] for charge in charges] == ["frozen", "taker"]
    assert len({charge["charge"] for charge in charges}) == 1
    assert [charge["attempt"] for charge in charges] == [1, 2]
    assert {charge["worker"] for charge in workers.told(charge=..., workflow="other")} == {"frozen"}


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.guarantee("sql.idle-transactions-end")
async def test_a_worker_frozen_while_it_has_a_job_locked_keeps_nobody_from_its_run(
    workers: Any, open_observer: Callable[[list[str]], Awaitable[Kernel]]
) -> None:
    kernel = await open_observer(["flow"])
    run_id = (await kernel.dispatch(CreateRun("flow", 1))).run_id
    short = f"{workers.url}?options=-c%20idle_in_transaction_session_timeout%3D3s"
    # It beats so often that the middle of one is soon met.
    beating = {**_SHORT_LEASES, "job_heartbeat_interval": "0.01s"}
    frozen = workers.start("frozen", ["flow"], url=short, seconds=120.0, host=beating)
    await workers.until(lambda: workers.told(charge=...), "the step begins")
    workers.freeze_with_a_job(frozen)
    workers.start("taker", ["flow"], host=_SHORT_LEASES)
    await workers.until(lambda: _is(kernel, run_id, Status.COMPLETED), "the other one ends the run")


async def _is(kernel: Kernel, run_id: str, status: Status) -> bool:
    run = await kernel.runs.get(run_id)
    return run is not None and run.status is status
