import base64
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from stagewright.errors import BlobNotFoundError, InvalidCursorError
from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.ports import (
    BlobStore,
    Enlistable,
    JobTransport,
    Persistence,
    RunReader,
    StepLedger,
    WorkNotifier,
)
from stagewright.records import LogRecord, RunQuery, RunRecord, StepRecord, StoredStage


class ExpectedError(Exception):
    pass


def test_the_adapters_are_what_they_say(database: InMemoryDatabase) -> None:
    persistence: Persistence = InMemoryPersistence(database)
    reader: RunReader = InMemoryPersistence(database)
    transport: JobTransport = InMemoryJobTransport(database)
    ledger: StepLedger = InMemoryStepLedger(database)
    blobs: BlobStore = InMemoryBlobStore(database)
    notifiers: list[WorkNotifier] = [InMemoryPersistence(database), InMemoryJobTransport(database)]
    enlistable: list[Enlistable] = [
        InMemoryJobTransport(database),
        InMemoryStepLedger(database),
        InMemoryBlobStore(database),
    ]
    assert isinstance(persistence, Persistence)
    assert isinstance(reader, RunReader)
    assert isinstance(transport, JobTransport)
    assert isinstance(ledger, StepLedger)
    assert isinstance(blobs, BlobStore)
    assert all(isinstance(adapter, WorkNotifier) for adapter in notifiers)
    assert all(isinstance(adapter, Enlistable) for adapter in enlistable)


@pytest.mark.parametrize("kind", [InMemoryJobTransport, InMemoryStepLedger, InMemoryBlobStore])
async def test_whether_an_adapter_enlists_depends_on_the_database_alone(
    kind: type[InMemoryJobTransport] | type[InMemoryStepLedger] | type[InMemoryBlobStore],
    database: InMemoryDatabase,
    store: InMemoryPersistence,
) -> None:
    assert kind(database).enlist(store) is not None
    assert kind().enlist(store) is None
    async with store.transaction() as tx:
        assert kind(database).enlist(tx) is not None
        assert kind().enlist(tx) is None


async def test_a_subclass_stays_one_inside_a_transaction(database: InMemoryDatabase) -> None:
    class Custom(InMemoryPersistence):
        pass

    async with Custom(database).transaction() as tx:
        assert type(tx) is Custom


async def test_adapters_over_one_database_share_a_transaction(
    database: InMemoryDatabase,
    store: InMemoryPersistence,
    new_run: Callable[..., RunRecord],
    new_stage: Callable[..., StoredStage],
    start: datetime,
) -> None:
    ledger, blobs = InMemoryStepLedger(database), InMemoryBlobStore(database)
    step = StepRecord(
        id="step1",
        stage_record_id="r1-price",
        step_id="charge",
        seq=1,
        kind="run",
        status="running",
        created_at=start,
        updated_at=start,
    )
    with suppress(ExpectedError):
        async with store.transaction() as tx:
            enlisted_ledger, enlisted_blobs = ledger.enlist(tx), blobs.enlist(tx)
            assert enlisted_ledger is not None
            assert enlisted_blobs is not None
            await tx.create_run(new_run("r1"))
            await tx.create_stage(new_stage("r1", "price"))
            assert await enlisted_ledger.claim(step) == (True, step)
            await enlisted_blobs.put("key", b"data")
            assert (await tx.list_steps("r1", limit=None, cursor=None)).items == (step,)
            assert [key async for key in enlisted_blobs.list("k")] == ["key"]
            assert [key async for key in blobs.list("k")] == []
            raise ExpectedError
    assert await ledger.list("r1-price") == []
    with pytest.raises(BlobNotFoundError):
        await blobs.get("key")


async def test_pages_show_every_run_of_the_start_once_while_others_are_created(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    for number in range(7):
        await store.create_run(new_run(f"r{number}", created_at=start + timedelta(seconds=number // 2)))
    shown: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_runs(RunQuery(), limit=2, cursor=cursor)
        shown.extend(run.id for run in page.items)
        await store.create_run(new_run(f"x{len(shown)}", created_at=start + timedelta(hours=1)))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert shown == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "r1",
        "ünïcode",
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        base64.urlsafe_b64encode(b"[]").decode(),
        base64.urlsafe_b64encode(b'["runs", "yesterday", "r1"]').decode(),
        base64.urlsafe_b64encode(b'["runs", "2025-01-01T00:00:00", "r1"]').decode(),
        base64.urlsafe_b64encode(b'["runs", "2025-01-01T00:00:00+00:00", 7]').decode(),
    ],
)
async def test_an_alien_cursor_is_refused(store: InMemoryPersistence, cursor: str) -> None:
    with pytest.raises(InvalidCursorError):
        await store.list_runs(RunQuery(), limit=2, cursor=cursor)
    with pytest.raises(InvalidCursorError):
        await store.list_logs("r1", level=None, limit=2, cursor=cursor)


async def test_a_cursor_of_another_listing_is_refused(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    await store.create_run(new_run("r1"))
    await store.append_logs(
        [
            LogRecord(id=f"l{number}", run_id="r1", level="INFO", message="m", created_at=start)
            for number in range(3)
        ]
    )
    page = await store.list_logs("r1", level=None, limit=2, cursor=None)
    assert [line.id for line in page.items] == ["l0", "l1"]
    rest = await store.list_logs("r1", level=None, limit=2, cursor=page.next_cursor)
    assert ([line.id for line in rest.items], rest.next_cursor) == (["l2"], None)
    with pytest.raises(InvalidCursorError):
        await store.list_runs(RunQuery(), limit=2, cursor=page.next_cursor)
