"""`kernel.annotations`: saying something of a run from outside its bodies, and reading what was said."""

import builtins
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field, SkipValidation

from stagewright.annotations import Actor, AnnotationInput, TypedKey, annotation_problems, by_name
from stagewright.errors import InvalidCommandError, RunNotFoundError
from stagewright.json_values import Json
from stagewright.kernel.command import (
    Command,
    Count,
    Id,
    Moment,
    PositiveCount,
    StorableText,
    checked_command,
)
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.annotate import AnnotationSubject, annotate
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.records import AnnotationQuery, AnnotationRecord
from stagewright.system import HomeProcess

__all__ = ["Annotations"]


class Annotations:
    """The annotations of runs; runs of any status have them."""

    def __init__(self, ports: KernelPorts, home: HomeProcess) -> None:
        self._given_ports = ports
        self._home = home

    @property
    def _ports(self) -> KernelPorts:
        self._home.require("this kernel")
        return self._given_ports

    async def attach(
        self,
        run_id: str,
        attributes: Mapping[Any, Json],  # Any: keys are text or typed keys of any value type
        *,
        actor: Actor | None = None,
        scope: str = "run",
        scope_id: str | None = None,
        payload: Json = None,
        idempotency_key: str | None = None,
        emit_event: bool = False,
    ) -> None:
        """Write a row for each attribute that has a value, all in one transaction.

        Args:
            run_id: The run it is about.
            attributes: Values by key, which is a `TypedKey` or text of 1 to 255 characters; a None value is dropped.
            actor: Who says so.
            scope: What it is about: `run`, `stage`, or a word of your own.
            scope_id: Which one, such as the stage id.
            payload: A JSON document that belongs to every row.
            idempotency_key: A key that the run has annotated under this already is skipped; the first value stays.
            emit_event: Whether each row that is written also emits `annotation:created`.

        Raises:
            RunNotFoundError: If there is no such run.
            InvalidCommandError: Naming each argument that is wrong.
            ValueNotSerializableError: If a key, a value, the payload or the actor can't be stored; nothing is kept.
        """
        given = {
            "run_id": run_id,
            "attributes": by_name(attributes) if isinstance(attributes, Mapping) else attributes,
            "actor": actor,
            "scope": scope,
            "scope_id": scope_id,
            "payload": payload,
            "idempotency_key": idempotency_key,
            "emit_event": emit_event,
        }
        asked = checked_command(_Attach, given)
        assert isinstance(asked, _Attach)
        annotation = AnnotationInput(
            attributes=asked.attributes,
            actor=asked.actor,
            payload=asked.payload,
            idempotency_key=asked.idempotency_key,
            emit_event=asked.emit_event,
        )
        problems = annotation_problems(annotation)
        if problems:
            raise InvalidCommandError(asked.type, problems)
        await in_transaction(
            self._ports, lambda unit: _attach(asked, annotation, unit), causation_id=asked.idempotency_key
        )

    async def list(
        self,
        run_id: str,
        *,
        key: str | TypedKey[Any] | None = None,  # Any: a key of any value type
        key_prefix: str | None = None,
        scope: str | None = None,
        scope_id: str | None = None,
        actor_id: str | None = None,
        actor_kind: str | None = None,
        attempt: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1000,
    ) -> builtins.list[AnnotationRecord]:
        """The annotations of a run, the oldest first; those of one moment in the order in which they were made.

        Filters are combined with AND. An unknown run has none.

        Args:
            run_id: The run.
            key: This very key; it goes before `key_prefix`.
            key_prefix: Keys that start with this, letter by letter.
            scope: What they are about.
            scope_id: Which one.
            actor_id: Who made them.
            actor_kind: What sort of actor made them.
            attempt: The attempt of the stage that they were made in; 0 is outside of stages.
            since: Made at or after.
            until: Made at or before.
            limit: At most so many, from 1 to 1,000,000.

        Raises:
            InvalidCommandError: Naming each argument that is wrong, such as a time without a zone.
        """
        given = {
            "run_id": run_id,
            "key": key.name if isinstance(key, TypedKey) else key,
            "key_prefix": key_prefix,
            "scope": scope,
            "scope_id": scope_id,
            "actor_id": actor_id,
            "actor_kind": actor_kind,
            "attempt": attempt,
            "since": since,
            "until": until,
            "limit": limit,
        }
        filters = asdict(checked_command(_List, given))  # type: ignore[call-overload]  # commands are dataclasses
        of_run = filters.pop("run_id")
        return await self._ports.persistence.list_annotations(of_run, AnnotationQuery(**filters))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attach(Command[None]):
    """The arguments of `attach`, so that they are checked as a command's are."""

    type: ClassVar[str] = "annotations.attach"

    run_id: Id
    attributes: Mapping[str, SkipValidation[Json]]
    actor: Actor | None
    scope: Id
    scope_id: Id | None
    payload: SkipValidation[Json]
    idempotency_key: Id | None
    emit_event: Annotated[bool, Field(strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _List(Command[None]):
    """The arguments of `list`, so that they are checked as a command's are."""

    type: ClassVar[str] = "annotations.list"

    run_id: Id
    key: StorableText | None
    key_prefix: StorableText | None
    scope: StorableText | None
    scope_id: StorableText | None
    actor_id: StorableText | None
    actor_kind: StorableText | None
    attempt: Count | None
    since: Moment | None
    until: Moment | None
    limit: PositiveCount


async def _attach(asked: _Attach, annotation: AnnotationInput, unit: UnitOfWork) -> None:
    # The run comes first of all: whoever writes for a run holds its row.
    locked = await unit.tx.lock_runs([asked.run_id])
    if not locked:
        raise RunNotFoundError(asked.run_id)
    unit.note_held(locked[0])
    subject = AnnotationSubject(scope=asked.scope, scope_id=asked.scope_id)
    await annotate(unit, [annotation], run_id=asked.run_id, subject=subject)
