"""Sweeping blobs whose runs are gone: what is found, what is spared, and what an end in the middle leaves."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from stagewright import Kernel, StageContext, StageResult, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun, PurgeRuns
from stagewright.errors import (
    CapabilityMissingError,
    InvalidDurationError,
    InvalidSettingError,
    NoKnownRunError,
    TransientError,
)
from stagewright.filesystem import FileSystemBlobStore
from stagewright.hosting import OrphanReport, drive_run, sweep_orphans
from stagewright.memory import InMemoryBlobStore, InMemoryDatabase, InMemoryPersistence
from stagewright.plugins import PluginSet
from stagewright.ports import BlobStore
from stagewright.runtime.keys import run_of_key, run_prefix
from stagewright.status import Status
from stagewright.system import TimeSortableIds
from stagewright.testing import FakeClock

NONE = PluginSet()
DAY = timedelta(days=1)
LEFT = "workflow-v2/flow/gone/s1/output-1.json"


async def large(ctx: StageContext[Any]) -> Any:
    await ctx.storage.save_bytes("kept/by the body", b"1")
    return StageResult(output="x" * 400, artifacts={"sheet": 1})


FLOW = define_workflow("flow", input=Any).pipe(define_stage("s1", large, input=Any, output=Any)).build()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime.now(UTC))  # that of files, at first


@pytest_asyncio.fixture(params=["memory", "sqlite", "files", "sqlite and files"])
async def kernel(
    request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path, stack: AsyncExitStack
) -> Kernel:
    """A kernel over one kind of store, with one run that has ended and left its blobs."""
    kind: str = request.param
    options: dict[str, Any] = {"clock": clock, "spill_threshold_bytes": 200}
    if "sqlite" in kind:
        pytest.importorskip("stagewright_persistence_sqlalchemy")
        options["url"] = f"sqlite:///{(tmp_path / 'runs.db').as_posix()}"
    else:
        options |= {"url": "memory://", "plugins": NONE}
    if "files" in kind:
        options["blob_store"] = (tmp_path / "blobs").as_uri()
    kernel = await stack.enter_async_context(open_kernel(FLOW, **options))
    assert (await ended_run(kernel)).status is Status.COMPLETED
    return kernel


async def ended_run(kernel: Kernel) -> Any:
    return await drive_run(kernel, (await kernel.dispatch(CreateRun("flow"))).run_id)


async def keys(kernel: Kernel) -> list[str]:
    return [key async for key in kernel.ports.blob_store.list("")]


async def sweep(kernel: Kernel, **options: Any) -> OrphanReport:
    options.setdefault("pause", 0)
    return await sweep_orphans(kernel, **options)


@pytest.mark.guarantee("orphans.found-and-nothing-else")
async def test_what_runs_need_is_kept_and_what_is_left_of_others_goes(
    kernel: Kernel, clock: FakeClock
) -> None:
    needed = await keys(kernel)
    assert len(needed) == 3
    left = sorted(
        f"{run_prefix('a:b', 'gone/1')}{rest}"
        for rest in ("s1/storage/x", "s1/output-1.json", "_jobs/s1-1.json")
    )
    for key in [LEFT, *left]:
        await kernel.ports.blob_store.put(key, b"1")
    clock.advance(2 * DAY)
    listed = await sweep(kernel)
    assert [blob.key for blob in listed.orphans] == [*left, LEFT]
    assert {(blob.workflow_id, blob.run_id) for blob in listed.orphans} == {
        ("flow", "gone"),
        ("a:b", "gone/1"),
    }
    assert (listed.deleted, listed.looked_at, listed.has_more) == (0, 7, False)
    assert len(await keys(kernel)) == 7, "a listing changes nothing"
    swept = await sweep(kernel, delete=True)
    assert (swept.orphans, swept.deleted) == (listed.orphans, 4)
    assert await keys(kernel) == needed
    assert await sweep(kernel, delete=True) == OrphanReport(looked_at=3)


@pytest.mark.guarantee("orphans.new-ones-are-left-alone")
async def test_what_is_new_is_left_alone_for_its_run_may_be_yet_to_commit(
    kernel: Kernel, clock: FakeClock
) -> None:
    await kernel.ports.blob_store.put(LEFT, b"1")
    clock.advance(DAY - timedelta(minutes=5))
    report = await sweep(kernel, delete=True)
    assert (report.orphans, report.too_new) == ((), 1)
    assert LEFT in await keys(kernel)
    assert (await sweep(kernel, delete=True, min_age="23h")).deleted == 1


class HeldDatabase(InMemoryDatabase):
    """Commits when it is told to."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def pause(self, moment: str) -> None:
        if moment == "commit":
            self.reached.set()
            await self.go.wait()
        await super().pause(moment)


class RememberedIds(TimeSortableIds):
    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []

    def new_id(self) -> str:
        self.given.append(super().new_id())
        return self.given[-1]


@pytest.mark.guarantee("orphans.new-ones-are-left-alone")
async def test_a_run_that_is_yet_to_commit_keeps_its_blobs(clock: FakeClock, tmp_path: Path) -> None:
    database, ids = HeldDatabase(clock), RememberedIds()
    blobs, persistence = FileSystemBlobStore(tmp_path), InMemoryPersistence(database)
    async with open_kernel(
        FLOW, persistence, blob_store=blobs, job_transport="memory://", clock=clock, ids=ids, plugins=NONE
    ) as kernel:
        creating = asyncio.create_task(kernel.dispatch(CreateRun("flow")))
        await database.reached.wait()
        for new_id in ids.given:
            await blobs.put(f"{run_prefix('flow', new_id)}s1/output-1.json", b"1")
        report = await sweep(kernel, delete=True, all_unknown=True)
        assert (report.too_new, report.deleted) == (len(ids.given), 0)
        database.go.set()
        run_id = (await creating).run_id
        clock.advance(2 * DAY)
        assert run_id not in {blob.run_id for blob in (await sweep(kernel, delete=True)).orphans}
        assert await keys(kernel) == [f"{run_prefix('flow', run_id)}s1/output-1.json"]


@pytest.mark.guarantee("orphans.strangers-keys-are-left-alone")
async def test_no_key_is_taken_that_stagewright_has_not_written(kernel: Kernel, clock: FakeClock) -> None:
    strangers = [
        "output.json",
        "workflow-v2",
        "workflow-v2/flow",
        "workflow-v2/flow/gone",
        "workflow-v2/flow/gone/",
        "workflow-v2/flow/gone/output.json",
        "workflow-v2/flow/gone/s1/",
        "workflow-v2/flow/gone/S1/output-1.json",
        "workflow-v2/flow/gone/_trash/output-1.json",
        "workflow-v2/flow/%67one/s1/output-1.json",
        "workflow-v2/flow/g one/s1/output-1.json",
        "workflow-v2//gone/s1/output-1.json",
        "workflow-v3/flow/gone/s1/output-1.json",
        "my/workflow-v2/flow/gone/s1/output-1.json",
    ]
    for key in strangers:
        await kernel.ports.blob_store.put(key, b"1")
    before = await keys(kernel)
    clock.advance(2 * DAY)
    report = await sweep(kernel, delete=True, all_unknown=True)
    assert (report.orphans, report.deleted, report.not_ours) == ((), 0, 10)
    assert await keys(kernel) == before


@given(
    st.text(min_size=1, max_size=30),
    st.text(min_size=1, max_size=30),
    st.text("ab/%. ", min_size=1, max_size=9),
)
def test_the_run_of_a_key_is_read_as_it_was_written(workflow_id: str, run_id: str, rest: str) -> None:
    assert run_of_key(f"{run_prefix(workflow_id, run_id)}s1/{rest}") == (workflow_id, run_id)
    assert run_of_key(f"{run_prefix(workflow_id, run_id)}{rest}/x") in (None, (workflow_id, run_id))


@pytest.mark.guarantee("orphans.an-interrupted-sweep-loses-nothing")
async def test_a_sweep_that_is_cut_short_is_finished_by_the_next(
    kernel: Kernel, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = await keys(kernel)
    left = [f"workflow-v2/flow/gone-{number}/s1/output-1.json" for number in range(6)]
    for key in left:
        await kernel.ports.blob_store.put(key, b"1")
    clock.advance(2 * DAY)
    store = type(kernel.ports.blob_store)
    really = store.delete_many
    calls = 0

    async def fails_at_the_third(self: BlobStore, doomed: Collection[str]) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise TransientError("the store is away")
        await really(self, doomed)

    monkeypatch.setattr(store, "delete_many", fails_at_the_third)
    with pytest.raises(TransientError):
        await sweep(kernel, delete=True, batch=1)
    assert len(await keys(kernel)) == len(needed) + 4
    assert (await sweep(kernel, delete=True, batch=1)).deleted == 4
    assert await keys(kernel) == needed


async def test_two_sweeps_at_once_do_no_harm(kernel: Kernel, clock: FakeClock) -> None:
    needed = await keys(kernel)
    for number in range(20):
        await kernel.ports.blob_store.put(f"workflow-v2/flow/gone-{number}/s1/output-1.json", b"1")
    clock.advance(2 * DAY)
    await asyncio.gather(*(sweep(kernel, delete=True, batch=3) for _ in range(3)))
    assert await keys(kernel) == needed


async def test_a_sweep_stops_at_its_limit_and_goes_on_the_next_time(kernel: Kernel, clock: FakeClock) -> None:
    for number in range(5):
        await kernel.ports.blob_store.put(f"workflow-v2/flow/gone-{number}/s1/output-1.json", b"1")
    clock.advance(2 * DAY)
    told = [await sweep(kernel, delete=True, limit=2) for _ in range(3)]
    assert [(report.deleted, report.has_more) for report in told] == [(2, True), (2, True), (1, False)]


async def test_the_blobs_of_a_purged_run_are_gone_already(kernel: Kernel, clock: FakeClock) -> None:
    await ended_run(kernel)
    assert (await kernel.dispatch(PurgeRuns(clock.now()))).purged == 2
    clock.advance(2 * DAY)
    assert await sweep(kernel, delete=True) == OrphanReport()


@pytest.mark.guarantee("orphans.two-that-do-not-belong-together")
async def test_blobs_of_which_no_run_is_known_are_deleted_only_when_that_is_meant(
    kernel: Kernel, clock: FakeClock, stack: AsyncExitStack
) -> None:
    other = await stack.enter_async_context(
        open_kernel(FLOW, "memory://", blob_store=kernel.ports.blob_store, clock=clock, plugins=NONE)
    )
    before = await keys(kernel)
    clock.advance(2 * DAY)
    assert len((await sweep(other)).orphans) == len(before)
    with pytest.raises(NoKnownRunError, match="belong together") as caught:
        await sweep(other, delete=True)
    assert caught.value.runs == 1
    assert await keys(kernel) == before
    assert (await sweep(other, delete=True, all_unknown=True)).deleted == len(before)


class Changing(InMemoryBlobStore):
    """Something happens once a blob was looked at for the second time."""

    def __init__(self, clock: FakeClock, event: Callable[["Changing"], Any]) -> None:
        super().__init__()
        self._database.clock = clock
        self.event = event
        self.looks = 0

    async def written_at(self, key: str) -> datetime | None:
        self.looks += 1
        if self.looks == 1:
            found = await super().written_at(key)
            await self.event(self)
            return found
        return await super().written_at(key)


@pytest.mark.guarantee("orphans.looked-at-again-before-they-are-deleted")
async def test_a_blob_that_is_written_again_meanwhile_is_spared(clock: FakeClock) -> None:
    blobs = Changing(clock, lambda store: store.put(LEFT, b"again"))
    async with open_kernel(FLOW, "memory://", blob_store=blobs, clock=clock, plugins=NONE) as kernel:
        await blobs.put(LEFT, b"1")
        clock.advance(2 * DAY)
        report = await sweep(kernel, delete=True, all_unknown=True)
        assert (len(report.orphans), report.deleted) == (1, 0)
        assert await blobs.get(LEFT) == b"again"


@pytest.mark.guarantee("orphans.looked-at-again-before-they-are-deleted")
async def test_a_run_that_appears_meanwhile_keeps_its_blobs(clock: FakeClock) -> None:
    class Appears(InMemoryPersistence):
        looks = 0

        async def get_run_status(self, run_id: str) -> Status | None:
            self.looks += 1
            return Status.RUNNING if self.looks > 1 else None

    blobs = InMemoryBlobStore()
    persistence = Appears()
    async with open_kernel(
        FLOW, persistence, blob_store=blobs, job_transport="memory://", clock=clock, plugins=NONE
    ) as kernel:
        await blobs.put(LEFT, b"1")
        clock.advance(2 * DAY)
        assert (await sweep(kernel, delete=True, all_unknown=True)).deleted == 0
        assert await blobs.has(LEFT)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"limit": 0}, InvalidSettingError, "limit=0 must be a whole number"),
        ({"batch": True}, InvalidSettingError, "batch=True must be a whole number"),
        ({"min_age": "9m"}, InvalidSettingError, "at least 10 minutes"),
        ({"min_age": 0}, InvalidSettingError, "at least 10 minutes"),
        ({"min_age": "old"}, InvalidDurationError, "min_age"),
        ({"pause": -1}, InvalidDurationError, "pause"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    options: dict[str, Any], error: type[Exception], problem: str
) -> None:
    async with open_kernel(FLOW, "memory://", plugins=NONE) as kernel:
        with pytest.raises(error, match=problem):
            await sweep(kernel, **options)


async def test_a_store_that_tells_no_dates_is_refused() -> None:
    class Undated:
        def __init__(self) -> None:
            self._store = InMemoryBlobStore()

        def __getattr__(self, name: str) -> Any:
            if name == "written_at":
                raise AttributeError(name)
            return getattr(self._store, name)

    undated: Any = Undated()
    async with open_kernel(FLOW, "memory://", blob_store=undated, plugins=NONE) as kernel:
        with pytest.raises(CapabilityMissingError, match="Undated doesn't offer DatesBlobs"):
            await sweep(kernel)


async def test_batches_are_looked_at_with_pauses_between_them(
    kernel: Kernel, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        await kernel.ports.blob_store.put(f"workflow-v2/flow/gone-{number}/s1/output-1.json", b"1")
    clock.advance(2 * DAY)
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("stagewright.hosting.orphans.asyncio.sleep", note)
    assert (await sweep(kernel, delete=True, batch=4, pause="3s")).deleted == 7
    assert pauses == [3.0, 3.0]
