"""Annotation keys with a value type, and who annotated."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from pydantic import SkipValidation

from stagewright.errors import DefinitionError
from stagewright.json_values import Json

__all__ = ["Actor", "AnnotationInput", "Stability", "TypedKey", "typed_key"]

V = TypeVar("V")
Stability = Literal["stable", "experimental", "deprecated"]

_KEY: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_RESERVED_PREFIX: Final = "legacy.metadata."


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who made an annotation.

    Attributes:
        kind: What sort of actor, such as `user`, `model`, `engine`.
        id: Which one, within its kind.
        version: Which version of it, such as a model's or a policy's.
    """

    kind: str
    id: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class TypedKey(Generic[V]):
    """An annotation key whose values have a known type; a type checker refuses others."""

    name: str
    stability: Stability = "experimental"
    description: str = ""

    def __str__(self) -> str:
        return self.name


def typed_key(name: str, *, stability: Stability = "experimental", description: str = "") -> TypedKey[V]:
    """Declare an annotation key: `confidence: TypedKey[float] = typed_key("decision.confidence")`.

    Args:
        name: Lower-case words joined by dots.
        stability: What its users may rely on.
        description: What its values mean.

    Raises:
        DefinitionError: If the name isn't lower-case words joined by dots, or starts with `legacy.metadata.`.
    """
    if not _KEY.fullmatch(name):
        raise DefinitionError(
            f"annotation key {name!r}", ("a key is lower-case words joined by dots, as 'decision.outcome'",)
        )
    if name.startswith(_RESERVED_PREFIX):
        raise DefinitionError(
            f"annotation key {name!r}", (f"keys that start with {_RESERVED_PREFIX!r} are reserved",)
        )
    return TypedKey(name, stability, description)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationInput:
    """One annotation as it is asked for, before it has an id and a time.

    Attributes:
        attributes: Values by key; each becomes a row, and a None value is dropped.
        actor: Who says so.
        payload: A JSON document that belongs to every row of it.
        idempotency_key: A second row of the same run, key and idempotency key is skipped.
        emit_event: Whether each row that is written also emits `annotation:created`.
    """

    # Unread by pydantic, which would turn a tuple into a list; the kernel refuses what isn't exact JSON.
    attributes: Mapping[str, SkipValidation[Json]]
    actor: Actor | None = None
    payload: SkipValidation[Json] = None
    idempotency_key: str | None = None
    emit_event: bool = False
