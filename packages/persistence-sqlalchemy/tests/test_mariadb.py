"""What only MariaDB does: compare carelessly, hang up on what is large, and undo all for a deadlock."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from asyncmy import errors as asyncmy_errors
from sqlalchemy import exc, text

from stagewright.errors import (
    DeadlockError,
    DuplicateRecordError,
    OutcomeUnknownError,
    PersistenceUnavailableError,
    RecordNotFoundError,
    TransientPersistenceError,
)
from stagewright.records import RunPatch, StepRecord
from stagewright_conformance.samples import a_run
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
)
from stagewright_persistence_sqlalchemy.errors import ValueTooLargeError
from stagewright_persistence_sqlalchemy.vendor_errors import translated_commit_errors, translated_errors

NAMES = ("a", "A", "a ", "ä", "Ä", "ß", "ss", "\N{FULLWIDTH LATIN SMALL LETTER A}", "😀", "😁")


@pytest.fixture
def way() -> str:
    return "mariadb"


@pytest.mark.guarantee("sql.mariadb-tells-texts-apart")
async def test_ids_and_keys_that_look_alike_are_different(database: Database) -> None:
    persistence, blobs = SqlAlchemyPersistence(database), SqlAlchemyBlobStore(database)
    ledger = SqlAlchemyStepLedger(database)
    for name in NAMES:
        await persistence.create_run(a_run(id=name, workflow_id=name))
        assert await blobs.put(f"k/{name}", name.encode(), if_absent=True)
        claimed, _ = await ledger.claim(_a_step(name))
        assert claimed
    for name in NAMES:
        run = await persistence.get_run(name)
        assert run is not None
        assert (run.id, run.workflow_id) == (name, name)
        assert await blobs.get(f"k/{name}") == name.encode()
    assert [key async for key in blobs.list("k/")] == sorted(f"k/{name}" for name in NAMES)
    assert [key async for key in blobs.list("k/a")] == ["k/a", "k/a "]
    assert [step.step_id for step in await ledger.list("stage")] == sorted(NAMES)


def _a_step(name: str) -> StepRecord:
    now = datetime.now(UTC)
    return StepRecord(
        id=f"id of {name}",
        stage_record_id="stage",
        step_id=name,
        seq=1,
        kind="run",
        status="running",
        attempt=1,
        created_at=now,
        updated_at=now,
    )


@pytest.mark.guarantee("sql.mariadb-too-large-is-told")
async def test_what_is_larger_than_the_server_takes_is_told_and_not_repeated(
    mariadb_server: Any,
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
) -> None:
    server = await asyncio.to_thread(mariadb_server, settings={"max-allowed-packet": "1M"})
    database = open_database(await asyncio.to_thread(server.create_database, "small"))
    await make_tables(database)
    blobs, persistence = SqlAlchemyBlobStore(database), SqlAlchemyPersistence(database)
    # A little too large, and so large that the server hangs up before it has got all of it.
    for size in (1_048_576, 50_000_000):
        with pytest.raises(ValueTooLargeError, match="max_allowed_packet"):
            await blobs.put("k", b"x" * size)
        with pytest.raises(ValueTooLargeError, match="max_allowed_packet"):
            await persistence.create_run(a_run(input="x" * size))
    assert not await blobs.has("k")
    assert await blobs.put("k", b"x" * 1_000_000)
    assert await blobs.get("k") == b"x" * 1_000_000


@pytest.mark.guarantee("sql.mariadb-too-large-is-told")
async def test_an_id_that_no_column_has_room_for_is_told(database: Database) -> None:
    with pytest.raises(ValueTooLargeError, match="Data too long"):
        await SqlAlchemyPersistence(database).create_run(a_run(id="x" * 256))


async def _run_into_a_deadlock(database: Database, *, nested: bool) -> None:
    """Hold a run, wait in a savepoint for another one whose holder waits for the first, and go on regardless."""
    persistence = SqlAlchemyPersistence(database)
    await persistence.create_run(a_run(id="kept"))
    for name in ("one", "other"):
        await persistence.create_run(a_run(id=name))
    async with database.engine.connect() as other:
        # The one that has changed more is spared.
        for number in range(50):
            await other.execute(text(f"INSERT INTO work_signals (id, count) VALUES ({number + 2}, 1)"))
        await other.execute(text("SELECT 1 FROM workflow_runs WHERE id = 'other' FOR UPDATE"))
        waiting: list[asyncio.Task[Any]] = []
        try:
            async with persistence.transaction() as tx:
                await tx.update_run("kept", RunPatch(updated_at=database.clock.now()), expected_version=1)
                await tx.lock_runs(["one"])
                lock = text("SELECT 1 FROM workflow_runs WHERE id = 'one' FOR UPDATE")
                waiting.append(asyncio.create_task(other.execute(lock)))
                await asyncio.sleep(0.2)
                if nested:
                    with pytest.raises(DeadlockError):
                        async with tx.transaction():
                            await tx.lock_runs(["other"])
                    await tx.update_run("one", RunPatch(updated_at=database.clock.now()))
                else:
                    await tx.lock_runs(["other"])
        finally:
            await asyncio.gather(*waiting)
            await other.rollback()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.guarantee("sql.mariadb-deadlock-undoes-all")
async def test_after_a_deadlock_nothing_of_the_transaction_is_kept(
    database: Database, *, nested: bool
) -> None:
    with pytest.raises(DeadlockError):
        await _run_into_a_deadlock(database, nested=nested)
    persistence = SqlAlchemyPersistence(database)
    for name in ("kept", "one", "other"):
        run = await persistence.get_run(name)
        assert run is not None
        assert run.version == 1


async def test_its_sessions_are_as_they_have_to_be_whatever_the_server_says(
    mariadb_server: Any, open_database: Callable[..., Database]
) -> None:
    careless = {"sql-mode": "", "default-time-zone": "+05:45", "transaction-isolation": "REPEATABLE-READ"}
    server = await asyncio.to_thread(mariadb_server, settings=careless)
    database = open_database(await asyncio.to_thread(server.create_database, "careless"))
    async with database.engine.connect() as connection:
        asked = text("SELECT @@tx_isolation, @@time_zone, @@sql_mode, @@character_set_connection")
        isolation, zone, mode, characters = (await connection.execute(asked)).one()
    assert (isolation, zone, characters) == ("READ-COMMITTED", "+00:00", "utf8mb4")
    assert {"STRICT_ALL_TABLES", "SIMULTANEOUS_ASSIGNMENT"} <= set(mode.split(","))


async def test_encryption_that_is_asked_for_is_not_done_without(
    url: str, open_database: Callable[..., Database]
) -> None:
    database = open_database(f"{url}?ssl=true")
    with pytest.raises(PersistenceUnavailableError, match="SSL"):
        await database.read(text("SELECT 1"), {})


def _said(number: int, kind: str = "OperationalError") -> exc.DBAPIError:
    original = getattr(asyncmy_errors, kind)(number, "what it says")
    return exc.DBAPIError("SELECT 1", {}, original)


@pytest.mark.guarantee("sql.failures-are-told-apart")
@pytest.mark.parametrize(
    ("number", "error"),
    [
        *((number, DeadlockError) for number in (1213, 1020)),
        *((number, TransientPersistenceError) for number in (1205, 1317, 1412, 1969)),
        *((number, PersistenceUnavailableError) for number in (1040, 1053, 1114, 1290, 2003, 2006, 2013, 0)),
        *((number, DuplicateRecordError) for number in (1062, 1586)),
        (1452, RecordNotFoundError),
        *((number, ValueTooLargeError) for number in (1153, 1406)),
    ],
)
def test_numbers_of_errors_are_known(number: int, error: type[Exception]) -> None:
    with pytest.raises(error) as raised, translated_errors():
        raise _said(number)
    assert type(raised.value) is error


@pytest.mark.parametrize("number", [1045, 1049, 1064, 1146])
def test_what_will_not_pass_stays_what_it_is(number: int) -> None:
    with pytest.raises(exc.DBAPIError), translated_errors():
        raise _said(number)


@pytest.mark.parametrize(
    ("number", "error"),
    [(2013, OutcomeUnknownError), (2006, PersistenceUnavailableError), (1213, DeadlockError)],
)
def test_a_commit_that_was_sent_and_not_answered_is_unknown(number: int, error: type[Exception]) -> None:
    with pytest.raises(error) as raised, translated_commit_errors():
        raise _said(number)
    assert type(raised.value) is error
