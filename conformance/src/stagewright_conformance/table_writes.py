"""One write to each table and how to see it, so that a promise about transactions is checked on every table."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import pytest

from stagewright.ports import Persistence, RunReader
from stagewright.records import AnnotationQuery, KeyAcquired, KeyCompleted, RunPatch, StagePatch, Tombstone
from stagewright.status import Status
from stagewright_conformance.samples import (
    LATER,
    MOMENT,
    a_definition,
    a_log_line,
    a_run,
    a_stage,
    an_annotation,
    an_event,
    new_id,
)

__all__ = [
    "EVERY_CAUSE",
    "EVERY_TABLE",
    "TABLE_WRITES",
    "BodyError",
    "Interruption",
    "Scene",
    "TableWrite",
    "seed",
    "write_then_raise",
]

_COMMAND: Final = "run.create"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is committed before a test writes.

    Attributes:
        run_id: A RUNNING run, at version 1, without events.
        pending_run_id: The only PENDING run, at version 1.
        stage_record_id: The stage `price` of the running run, at version 1.
        taken_key: An idempotency key in progress.
        event_id: The only event, of a third run, unclaimed.
        spare_stage_record_id: The stage `spare` of the running run.
        ended_run_id: A COMPLETED run that nothing belongs to.
        buried_run_id: The run of the only tombstone.
        new_id: An id that nothing has yet, for whatever the test inserts.
    """

    run_id: str
    pending_run_id: str
    stage_record_id: str
    taken_key: str
    event_id: str
    spare_stage_record_id: str
    ended_run_id: str
    buried_run_id: str
    new_id: str


async def seed(persistence: Persistence) -> Scene:
    """Commit a scene to an empty store."""
    running, pending, with_event = a_run(status=Status.RUNNING), a_run(), a_run(status=Status.RUNNING)
    stage, key = a_stage(running.id), new_id("key")
    event = an_event(with_event.id, occurred_at=MOMENT - timedelta(hours=1))
    spare, ended = a_stage(running.id, stage_id="spare", stage_number=9), a_run(status=Status.COMPLETED)
    buried = Tombstone(
        run_id=new_id("run"), blob_prefixes=(), stage_ids=(), stage_record_ids=(), created_at=MOMENT
    )
    for run in (running, pending, with_event, ended):
        await persistence.create_run(run)
    await persistence.create_stage(stage)
    await persistence.create_stage(spare)
    await persistence.put_tombstone(buried)
    await persistence.append_outbox_events([event])
    await _acquire(persistence, key)
    return Scene(
        run_id=running.id,
        pending_run_id=pending.id,
        stage_record_id=stage.id,
        taken_key=key,
        event_id=event.id,
        spare_stage_record_id=spare.id,
        ended_run_id=ended.id,
        buried_run_id=buried.run_id,
        new_id=new_id("new"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """A write and its trace.

    Attributes:
        name: What is written, in words.
        write: Does it, on a seeded store, once.
        happened: Whether it is to be seen there.
        seen_by: How one looks: by a plain read of the store, through the reader, or only by writing.
    """

    name: str
    write: Callable[[Persistence, Scene], Awaitable[object]]
    happened: Callable[[Persistence, RunReader, Scene], Awaitable[bool]]
    seen_by: Literal["store", "reader", "writing"] = "store"


async def _acquire(store: Persistence, key: str) -> object:
    return await store.acquire_idempotency_key(key, _COMMAND, fingerprint="f", now=MOMENT, stale_after=None)


async def _create_run(store: Persistence, scene: Scene) -> None:
    await store.create_run(a_run(id=scene.new_id, status=Status.RUNNING))


async def _run_created(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await store.get_run(scene.new_id) is not None


async def _update_run(store: Persistence, scene: Scene) -> None:
    await store.update_run(scene.run_id, RunPatch(updated_at=LATER, total_tokens=7))


async def _run_updated(store: Persistence, _: RunReader, scene: Scene) -> bool:
    run = await store.get_run(scene.run_id)
    return run is not None and (run.total_tokens, run.version) == (7, 2)


async def _claim_run(store: Persistence, scene: Scene) -> None:
    await store.claim_pending_runs(1, now=LATER, serves=None)


async def _run_claimed(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await store.get_run_status(scene.pending_run_id) is Status.RUNNING


async def _create_stage(store: Persistence, scene: Scene) -> None:
    await store.create_stage(a_stage(scene.run_id, stage_id="ship", stage_number=2))


async def _stage_created(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await store.get_stage(scene.run_id, "ship") is not None


async def _update_stage(store: Persistence, scene: Scene) -> None:
    await store.update_stage(scene.stage_record_id, StagePatch(updated_at=LATER, output=[1]))


async def _stage_updated(store: Persistence, _: RunReader, scene: Scene) -> bool:
    stage = await store.get_stage(scene.run_id, "price")
    return stage is not None and (stage.output, stage.version) == ([1], 2)


async def _delete_stage(store: Persistence, scene: Scene) -> None:
    await store.delete_stage(scene.spare_stage_record_id)


async def _stage_deleted(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await store.get_stage(scene.run_id, "spare") is None


async def _delete_run(store: Persistence, scene: Scene) -> None:
    await store.delete_run(scene.ended_run_id)


async def _run_deleted(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await store.get_run(scene.ended_run_id) is None


async def _put_tombstone(store: Persistence, scene: Scene) -> None:
    tombstone = Tombstone(
        run_id=scene.new_id, blob_prefixes=(), stage_ids=(), stage_record_ids=(), created_at=MOMENT
    )
    await store.put_tombstone(tombstone)


async def _tombstone_put(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return scene.new_id in {one.run_id for one in await store.list_tombstones(9)}


async def _remove_tombstone(store: Persistence, scene: Scene) -> None:
    await store.remove_tombstone(scene.buried_run_id)


async def _tombstone_removed(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return scene.buried_run_id not in {one.run_id for one in await store.list_tombstones(9)}


async def _insert_definition(store: Persistence, scene: Scene) -> None:
    await store.insert_definition_if_absent(a_definition(version=scene.new_id))


async def _definition_inserted(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await store.get_definition("orders", scene.new_id) is not None


async def _annotate(store: Persistence, scene: Scene) -> None:
    await store.append_annotations([an_annotation(scene.run_id)])


async def _annotated(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await store.list_annotations(scene.run_id, AnnotationQuery()) != []


async def _log(store: Persistence, scene: Scene) -> None:
    await store.append_logs([a_log_line(scene.run_id)])


async def _logged(_: Persistence, reader: RunReader, scene: Scene) -> bool:
    return (await reader.list_logs(scene.run_id, level=None, limit=10, cursor=None)).items != ()


async def _append_event(store: Persistence, scene: Scene) -> None:
    await store.append_outbox_events([an_event(scene.run_id)])


async def _event_appended(_: Persistence, reader: RunReader, scene: Scene) -> bool:
    return await reader.list_events(scene.run_id, after=0, limit=10) != []


async def _publish_event(store: Persistence, scene: Scene) -> None:
    until = MOMENT + timedelta(minutes=1)
    await store.claim_unpublished_outbox_events(1, token="t", now=MOMENT, claimed_until=until)
    await store.mark_outbox_events_published([scene.event_id], token="t", now=MOMENT)


async def _event_published(store: Persistence, _: RunReader, scene: Scene) -> bool:
    claimed = await store.claim_unpublished_outbox_events(
        9, token="looking", now=LATER, claimed_until=LATER + timedelta(minutes=1)
    )
    return scene.event_id not in {event.id for event in claimed}


async def _take_key(store: Persistence, scene: Scene) -> None:
    await _acquire(store, scene.new_id)


async def _key_taken(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await _acquire(store, scene.new_id) != KeyAcquired()


async def _complete_key(store: Persistence, scene: Scene) -> None:
    await store.complete_idempotency_key(scene.taken_key, _COMMAND, taken_at=MOMENT, result={"run_id": "r"})


async def _key_completed(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return isinstance(await _acquire(store, scene.taken_key), KeyCompleted)


async def _release_key(store: Persistence, scene: Scene) -> None:
    await store.release_idempotency_key(scene.taken_key, _COMMAND, taken_at=MOMENT)


async def _key_released(store: Persistence, _: RunReader, scene: Scene) -> bool:
    return await _acquire(store, scene.taken_key) == KeyAcquired()


TABLE_WRITES: Final = (
    TableWrite(name="run created", write=_create_run, happened=_run_created),
    TableWrite(name="run changed", write=_update_run, happened=_run_updated),
    TableWrite(name="run claimed", write=_claim_run, happened=_run_claimed),
    TableWrite(name="stage created", write=_create_stage, happened=_stage_created),
    TableWrite(name="stage changed", write=_update_stage, happened=_stage_updated),
    TableWrite(name="stage deleted", write=_delete_stage, happened=_stage_deleted),
    TableWrite(name="run deleted", write=_delete_run, happened=_run_deleted),
    TableWrite(name="tombstone put", write=_put_tombstone, happened=_tombstone_put),
    TableWrite(name="tombstone removed", write=_remove_tombstone, happened=_tombstone_removed),
    TableWrite(name="definition inserted", write=_insert_definition, happened=_definition_inserted),
    TableWrite(name="annotation appended", write=_annotate, happened=_annotated),
    TableWrite(name="log line appended", write=_log, happened=_logged, seen_by="reader"),
    TableWrite(name="event appended", write=_append_event, happened=_event_appended, seen_by="reader"),
    TableWrite(name="event published", write=_publish_event, happened=_event_published, seen_by="writing"),
    TableWrite(name="key taken", write=_take_key, happened=_key_taken, seen_by="writing"),
    TableWrite(name="key completed", write=_complete_key, happened=_key_completed, seen_by="writing"),
    TableWrite(name="key released", write=_release_key, happened=_key_released, seen_by="writing"),
)
"""A write to every table of a persistence. Within one transaction they don't disturb each other, in this order."""


class BodyError(Exception):
    """What a test's block raises."""


class Interruption(BaseException):
    """What raises without being an `Exception`."""


EVERY_TABLE: Final = pytest.mark.parametrize(
    "table", TABLE_WRITES, ids=lambda table: table.name.replace(" ", "-")
)
"""Runs a test for each table."""

EVERY_CAUSE: Final = pytest.mark.parametrize("cause", [BodyError, asyncio.CancelledError, Interruption])
"""Runs a test for each kind of exception that may end a block."""


async def write_then_raise(
    store: Persistence, table: TableWrite, scene: Scene, cause: type[BaseException] = BodyError
) -> None:
    """Write to a table in a transaction, or savepoint, that raises."""
    async with store.transaction() as tx:
        await table.write(tx, scene)
        raise cause
