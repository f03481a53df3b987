from collections.abc import Sequence

from stagewright.errors import DuplicateRecordError, RecordNotFoundError
from stagewright.memory.connection import Connection
from stagewright.memory.rows import AnnotationRow
from stagewright.records import AnnotationQuery, AnnotationRecord
from stagewright.records.copies import detached

__all__ = ["InMemoryAnnotationStore"]


class InMemoryAnnotationStore(Connection):
    """Annotations of runs; see `AnnotationStore`."""

    async def append_annotations(self, annotations: Sequence[AnnotationRecord]) -> list[str]:
        """Insert annotations but for those whose idempotency key is there already; the ids of what was written."""
        table = self._database.annotations
        written: list[str] = []
        async with self._statement("append_annotations") as tx:
            for unique in sorted(
                {_unique(record) for record in annotations if record.idempotency_key is not None}
            ):
                await tx.lock(("annotation keys", unique))
            for record in annotations:
                if tx.get(self._database.runs, record.run_id) is None:
                    raise RecordNotFoundError("run", record.run_id)
                if (
                    record.idempotency_key is not None
                    and tx.first(table, "unique", _unique(record)) is not None
                ):
                    continue
                await tx.lock((table.name, record.id))
                if tx.get(table, record.id) is not None:
                    raise DuplicateRecordError("annotation", record.id)
                tx.put(table, AnnotationRow(detached(record), self._database.next_position()))
                written.append(record.id)
        return written

    async def list_annotations(self, run_id: str, query: AnnotationQuery) -> list[AnnotationRecord]:
        """The annotations of a run that fit the query, by `created_at`, then in the order of appending."""
        async with self._statement("list_annotations") as tx:
            rows = [
                row for row in tx.where(self._database.annotations, "run", run_id) if _fits(row.record, query)
            ]
            rows.sort(key=lambda row: (row.record.created_at, row.position))
            return [detached(row.record) for row in rows[: max(query.limit, 0)]]


def _unique(record: AnnotationRecord) -> tuple[str, str, str]:
    return (record.run_id, record.key, record.idempotency_key or "")


def _fits(record: AnnotationRecord, query: AnnotationQuery) -> bool:
    actor = record.actor
    return (
        _fits_key(record.key, query)
        and query.scope in (None, record.scope)
        and query.scope_id in (None, record.scope_id)
        and (query.actor_id is None or (actor is not None and actor.id == query.actor_id))
        and (query.actor_kind is None or (actor is not None and actor.kind == query.actor_kind))
        and query.attempt in (None, record.attempt)
        and (query.since is None or record.created_at >= query.since)
        and (query.until is None or record.created_at <= query.until)
    )


def _fits_key(key: str, query: AnnotationQuery) -> bool:
    if query.key is not None:
        return key == query.key
    return query.key_prefix is None or key.startswith(query.key_prefix)
