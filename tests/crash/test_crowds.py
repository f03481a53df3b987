"""Two workers share many runs; all processes are killed at once and started anew."""

from collections import Counter
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
_RUNS = 500


@pytest.fixture(params=["postgres", pytest.param("mariadb", marks=pytest.mark.wide)])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.guarantee("hosts.bodies-once")
async def test_two_workers_share_500_runs_and_run_each_body_once(
    workers: Any, open_observer: Callable[[list[str]], Awaitable[Kernel]]
) -> None:
    kernel = await open_observer(["flow"])
    runs = [(await kernel.dispatch(CreateRun("flow", number))).run_id for number in range(_RUNS)]
    for name in ("one", "two"):
        workers.start(name, ["flow"])
    await workers.until(lambda: _completed(kernel, "flow", _RUNS), "every run completes", within=180)
    charges = Counter(charge["charge"] for charge in workers.told(charge=...))
    assert len(charges) == _RUNS
    assert set(charges.values()) == {1}
    assert len(workers.told(body="pay")) == len(workers.told(body="thank")) == _RUNS
    shares = Counter(charge["worker"] for charge in workers.told(charge=...))
    # Both had their part of it.
    assert set(shares) == {"one", "two"}
    assert min(shares.values()) > _RUNS // 10
    assert len(runs) == len(set(runs))


@pytest.mark.guarantee("hosts.killed-all-at-once")
async def test_all_are_killed_at_once_and_started_anew(
    workers: Any, open_observer: Callable[[list[str]], Awaitable[Kernel]]
) -> None:
    kernel = await open_observer(["again"])
    for number in range(_RUNS):
        await kernel.dispatch(CreateRun("again", number))
    for name in ("one", "two"):
        workers.start(name, ["again"], host=_SHORT_LEASES, seconds=0.01)
    for share in (4, 2):
        await workers.until(
            lambda share=share: _completed(kernel, "again", _RUNS // share), "some complete", within=120
        )
        workers.kill_all()
        for name in ("one", "two"):
            workers.start(f"{name}-after-{_RUNS // share}", ["again"], host=_SHORT_LEASES, seconds=0.01)
    await workers.until(lambda: _completed(kernel, "again", _RUNS), "every run completes", within=180)
    charges = Counter(charge["charge"] for charge in workers.told(charge=...))
    assert len(charges) == _RUNS
    # Only what was under way when all were killed has run again.
    assert sum(charges.values()) - _RUNS <= 2 * 2 * 8


async def _completed(kernel: Kernel, workflow_id: str, count: int) -> bool:
    found, cursor = 0, None
    while True:
        page = await kernel.runs.list(
            workflow_id=workflow_id, statuses=[Status.COMPLETED], limit=200, cursor=cursor
        )
        found += len(page.items)
        if page.next_cursor is None:
            return found >= count
        cursor = page.next_cursor
