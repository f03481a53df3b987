"""Annotations."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Executable, select

from stagewright.records import AnnotationQuery, AnnotationRecord
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.prefixes import starts_with
from stagewright_persistence_sqlalchemy.rows import annotation_of
from stagewright_persistence_sqlalchemy.statements.writes_at_once import insert_annotations
from stagewright_persistence_sqlalchemy.tables import Tables

__all__ = ["AnnotationRows"]


class AnnotationRows(Connection):
    """`AnnotationStore`."""

    async def append_annotations(self, annotations: Sequence[AnnotationRecord]) -> list[str]:
        """Insert annotations, skipping each whose run, key and idempotency key exist already."""
        if not annotations:
            return []
        statement = insert_annotations(self._tables, self._database.kind)
        async with self._writing() as tx:
            return [one.id for one in annotations if await tx.execute(statement, _row(one))]

    async def list_annotations(self, run_id: str, query: AnnotationQuery) -> list[AnnotationRecord]:
        """The annotations of a run that fit the query, by `created_at`, then as they were appended."""
        if query.limit < 1:
            return []
        return [annotation_of(row) for row in await self._fetch(_listing(self._tables, run_id, query), {})]


def _listing(tables: Tables, run_id: str, query: AnnotationQuery) -> Executable:
    columns = tables.annotations.c
    wanted = [columns.run_id == run_id]
    if query.key is not None:
        wanted.append(columns.key == query.key)
    elif query.key_prefix is not None:
        wanted.append(starts_with(columns.key, query.key_prefix))
    exact = {
        columns.scope: query.scope,
        columns.scope_id: query.scope_id,
        columns.actor_id: query.actor_id,
        columns.actor_kind: query.actor_kind,
        columns.attempt: query.attempt,
    }
    wanted += [column == value for column, value in exact.items() if value is not None]
    if query.since is not None:
        wanted.append(columns.created_at >= query.since)
    if query.until is not None:
        wanted.append(columns.created_at <= query.until)
    ordered = select(tables.annotations).where(*wanted).order_by(columns.created_at, columns.position)
    return ordered.limit(query.limit)


def _row(annotation: AnnotationRecord) -> dict[str, Any]:
    actor = annotation.actor
    return {
        "id": annotation.id,
        "run_id": annotation.run_id,
        "stage_record_id": annotation.stage_record_id,
        "attempt": annotation.attempt,
        "scope": annotation.scope,
        "scope_id": annotation.scope_id,
        "actor_kind": actor.kind if actor else None,
        "actor_id": actor.id if actor else None,
        "actor_version": actor.version if actor else None,
        "key": annotation.key,
        "value": annotation.value,
        "payload": annotation.payload,
        "idempotency_key": annotation.idempotency_key,
        "created_at": annotation.created_at,
    }
