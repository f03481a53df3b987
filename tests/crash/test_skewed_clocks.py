"""Workers whose clocks are ten minutes fast, ten minutes slow, and right: nothing is early, late, or taken over."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from stagewright import Kernel, Ready, StageContext, Status, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright.records import RunRecord

pytestmark = pytest.mark.slow

_TEN_MINUTES = 600.0
_RUNS_EACH = 6
_WITHIN = 10.0
_CLOCK_ERROR = timedelta(seconds=0.2)
_LASTS = {"hold": 20.0, "nap": 5.0, "overrun": 10.0, "stumble": 5.0, "batch": 15.0}
_DELIVERIES = {"hold": 1, "nap": 2, "overrun": 1, "stumble": 2, "batch": 1}


@pytest.mark.guarantee("hosts.one-clock")
@pytest.mark.parametrize(
    "url",
    ["postgres", *(pytest.param(name, marks=pytest.mark.soak) for name in ("sqlite", "mariadb"))],
    indirect=True,
)
async def test_wrong_clocks_change_nothing(workers: Any, url: str) -> None:
    # SQLite's workers are on one machine, which has one clock.
    skews = {"fast": _TEN_MINUTES, "slow": -_TEN_MINUTES, "right": 0.0}
    if url.startswith("sqlite"):
        skews = dict.fromkeys(skews, 0.0)
    async with open_kernel(_flows(), url, create_schema=True) as kernel:
        for name, skew in skews.items():
            workers.start(name, list(_LASTS), program="skewed_worker.py", skew=skew)
        for name in skews:
            await workers.until(lambda name=name: "takes up to" in _log_of(workers, name), f"{name} works")
        began = datetime.now(UTC)
        runs = {
            (await kernel.dispatch(CreateRun(flow, number))).run_id: flow
            for number in range(_RUNS_EACH)
            for flow in _LASTS
        }
        await workers.until(lambda: _all_ended(kernel, list(runs)), "every run ends", within=60)
        for run_id, flow in runs.items():
            run = await _run(kernel, run_id)
            assert run.status is (Status.FAILED if flow == "overrun" else Status.COMPLETED), (flow, run.error)
            told = [(line["what"], line["at"]) for line in workers.told(run=run_id, what=...)]
            # A body that sleeps begins again when it is over.
            assert [what for what, _ in told if what == "begun"] == ["begun"] * (2 if flow == "nap" else 1)
            [over] = [at for what, at in told if what == "over"]
            assert -0.1 <= over - told[0][1] - _LASTS[flow] <= _WITHIN, (flow, told)
            [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
            assert (job.deliveries, job.worker_losses, job.interruptions) == (_DELIVERIES[flow], 0, 0), flow
            assert run.started_at is not None
            assert run.completed_at is not None
            # The database's clock is known to a fraction of a round trip only.
            times = (began, run.created_at, run.started_at, run.completed_at, datetime.now(UTC))
            assert all(later - earlier > -_CLOCK_ERROR for earlier, later in pairwise(times)), times
        assert {line["worker"] for line in workers.told(what="begun")} == set(skews)


def _flows() -> list[Any]:
    async def body(ctx: StageContext[int]) -> int:
        raise AssertionError("the test's own process runs no body")

    async def look(state: object, ctx: StageContext[int]) -> Ready[int]:
        raise AssertionError("the test's own process asks for no batch")

    # The structures are those of the workers, which would leave others of the same version alone.
    stages = {name: define_stage(name, body, input=int, output=int) for name in _LASTS}
    stages["batch"] = define_stage(
        "batch", body, input=int, output=int, mode="async-batch", check_completion=look
    )
    return [define_workflow(name, input=int).pipe(stages[name]).version("1").build() for name in _LASTS]


def _log_of(workers: Any, name: str) -> str:
    [worker] = [one for one in workers.processes if one.name == name]
    return str(worker.log.read_text())


async def _all_ended(kernel: Kernel, run_ids: list[str]) -> bool:
    runs = [await _run(kernel, run_id) for run_id in run_ids]
    return all(run.status in (Status.COMPLETED, Status.FAILED) for run in runs)


async def _run(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run
