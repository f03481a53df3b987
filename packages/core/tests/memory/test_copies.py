import asyncio
from collections.abc import Callable
from datetime import datetime

from stagewright.json_values import Json
from stagewright.memory import InMemoryBlobStore, InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.records import NewJob, RunPatch, RunRecord
from stagewright.records.copies import detached, detached_value


def test_immutable_records_and_values_are_not_copied(new_run: Callable[..., RunRecord]) -> None:
    run = new_run("r1", config={"stage": {"limits": [1]}})
    copied = detached(run)
    assert copied == run
    assert copied.config["stage"] is not run.config["stage"]
    text = "a text that is long enough not to be shared by itself"
    assert detached_value(text) is text


async def test_nothing_given_or_received_is_shared_with_the_store(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    given: dict[str, Json] = {"lines": [1, {"sku": "a"}]}
    await store.create_run(new_run("r1", input=given))
    output: list[Json] = [1]
    await store.update_run("r1", RunPatch(updated_at=start, output=output))
    given["lines"] = []
    output.append(2)
    received = await store.get_run("r1")
    assert received is not None
    assert (received.input, received.output) == ({"lines": [1, {"sku": "a"}]}, [1])
    assert isinstance(received.input, dict)
    received.input.clear()
    [locked] = await store.lock_runs(["r1"])
    assert locked.input == {"lines": [1, {"sku": "a"}]}


async def test_a_write_of_a_transaction_is_as_it_was_when_it_was_made(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord]
) -> None:
    given: list[Json] = [1]
    async with store.transaction() as tx:
        await tx.create_run(new_run("r1", input=given))
        given.append(2)
        seen = await tx.get_run("r1")
        assert seen is not None
        assert seen.input == [1]
        assert isinstance(seen.input, list)
        seen.input.append(3)
    kept = await store.get_run("r1")
    assert kept is not None
    assert kept.input == [1]


async def test_the_payload_of_a_job_is_the_receivers_own(new_job: Callable[..., NewJob]) -> None:
    transport = InMemoryJobTransport()
    payload: dict[str, Json] = {"nested": {"a": 1}}
    await transport.enqueue_parallel([new_job("j1", run_id="r1", payload=payload)])
    payload.clear()
    [taken] = await transport.dequeue(worker_id="w1")
    taken.payload.clear()
    [kept] = await transport.get_jobs_by_run("r1")
    assert kept.payload == {"nested": {"a": 1}}


async def test_a_blob_is_as_its_buffer_was(database: InMemoryDatabase) -> None:
    blobs = InMemoryBlobStore(database)
    buffer = bytearray(b"\x00\xff")
    await blobs.put("a", bytes(buffer))
    async with blobs.open_write("b") as writer:
        await writer.write(bytes(buffer))
        assert not await asyncio.create_task(blobs.has("b"))
    assert await blobs.get("a") == await blobs.get("b") == b"\x00\xff"
