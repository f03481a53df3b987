"""Workers with runs in PostgreSQL, jobs in Valkey and large values in S3 are killed one after the other."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from stagewright import Kernel, Status, open_kernel
from stagewright.commands import CreateRun, FlushOutbox, PurgeRuns
from stagewright.hosting import wait_for_run
from stagewright.testing import assert_consistent
from stagewright_test_support import large_value_flow
from stagewright_test_support.buckets import Bucket, s3_bucket
from stagewright_test_support.large_value_flow import config_of, flow, input_of, output_of
from stagewright_test_support.worker_commands import KILLED_SOON_FOUND, WorkerCommands

TARGET = f"{large_value_flow.__file__}:flow"
_FOUND_AT_ONCE = (
    "--stale-lease-threshold=1s", "--job-heartbeat-interval=250ms", "--orchestration-interval=250ms",
    "--poll-interval=250ms",
)  # fmt: skip
_CLAIMS_OF_EVENTS_END = timedelta(minutes=5)


@dataclass(frozen=True)
class Story:
    """How much is done, and how often a worker is killed meanwhile; held bodies end after the first kill."""

    runs: int
    workers: int
    kills: int
    begun_between: int
    pause: float
    options: tuple[str, ...] = KILLED_SOON_FOUND
    is_held: bool = False


class MovingClock:
    """This machine's clock, which can be put forward."""

    ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def bucket(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket of the test's own."""
    made = s3_bucket(s3_address)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def stores(postgres_url: str, valkey_url: str, redis_prefix: str, bucket: Bucket) -> dict[str, str]:
    jobs = f"{valkey_url}?namespace={redis_prefix}"
    return {"url": postgres_url, "job_transport": jobs, "blob_store": bucket.url("large")}


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest_asyncio.fixture
async def kernel(stores: dict[str, str], clock: MovingClock) -> AsyncIterator[Kernel]:
    """A kernel that creates, looks and purges."""
    apart = {name: url for name, url in stores.items() if name != "url"}
    options: dict[str, Any] = {**apart, "clock": clock, "create_schema": True}
    async with open_kernel(flow, stores["url"], **options) as opened:
        yield opened


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[WorkerCommands]:
    started = WorkerCommands(TARGET, tmp_path)
    yield started
    started.kill_all()


async def objects_in(kernel: Kernel) -> list[str]:
    return [key async for key in kernel.ports.blob_store.list("")]


async def purge_all(kernel: Kernel, run_ids: list[str]) -> None:
    while (await kernel.dispatch(FlushOutbox(1_000))).published:
        pass
    purged = await kernel.dispatch(PurgeRuns(older_than=kernel.ports.clock.now(), limit=10_000))
    assert set(purged.run_ids) == set(run_ids)


@pytest.mark.guarantee("hosts.killed-over-three-stores")
@pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            Story(4, workers=1, kills=1, begun_between=4, pause=0, options=_FOUND_AT_ONCE, is_held=True),
            marks=pytest.mark.slow,
            id="once",
        ),
        pytest.param(
            Story(120, workers=3, kills=10, begun_between=40, pause=2.0),
            marks=pytest.mark.wide,
            id="ten times",
        ),
    ],
)
async def test_every_run_completes_exactly_and_leaves_no_blob_behind(
    story: Story,
    stores: dict[str, str],
    kernel: Kernel,
    clock: MovingClock,
    workers: WorkerCommands,
    tmp_path: Path,
) -> None:
    options = [f"--{name.replace('_', '-')}={url}" for name, url in stores.items()]
    numbers: dict[str, int] = {}
    for number in range(story.runs):
        created = await kernel.dispatch(CreateRun("large", input_of(number), config=config_of(number)))
        numbers[created.run_id] = number

    held = tmp_path / "held"
    if story.is_held:
        held.touch()

    async def let_go(kills: int) -> None:
        held.unlink(missing_ok=True)

    def start() -> Any:
        return workers.start(*options, *story.options)

    await workers.kill_over_and_over(
        start,
        [start() for _ in range(story.workers)],
        Random(story.runs),
        times=story.kills,
        begun_between=story.begun_between,
        pause=story.pause,
        and_then=let_go,
    )
    for run_id, number in numbers.items():
        run = await wait_for_run(kernel, run_id, timeout="120s")
        assert (run.status, run.output) == (Status.COMPLETED, output_of(number))
        events = [event.type for event in await kernel.runs.events(run_id, limit=1_000)]
        assert (events.count("stage:completed"), events.count("workflow:completed")) == (4, 1)
    assert set(workers.noted("step")) == set(numbers)
    # One stage sleeps, and begins twice; whatever was killed begins once more.
    assert workers.noted("begin").total() > 5 * story.runs
    await assert_consistent(kernel)
    await asyncio.to_thread(workers.kill_all)
    # The payload of a job, a step, an artifact and four outputs of each run.
    assert len(await objects_in(kernel)) >= 7 * story.runs

    clock.ahead = _CLAIMS_OF_EVENTS_END
    await purge_all(kernel, list(numbers))
    assert await objects_in(kernel) == []
