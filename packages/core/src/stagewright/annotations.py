"""Annotation keys with a value type, and who annotated."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import SkipValidation, StrictBool

from stagewright.errors import DefinitionError, Problem
from stagewright.json_values import Json, shown

__all__ = [
    "Actor",
    "AnnotationInput",
    "Stability",
    "TypedKey",
    "annotation_problems",
    "by_name",
    "typed_key",
]

V = TypeVar("V")
W = TypeVar("W")
Stability = Literal["stable", "experimental", "deprecated"]

_KEY: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_LONGEST_KEY: Final = 255
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
        name: Lower-case words joined by dots, at most 255 characters.
        stability: What its users may rely on.
        description: What its values mean.

    Raises:
        DefinitionError: If the name isn't lower-case words joined by dots, is too long, or starts with
            `legacy.metadata.`.
    """
    if len(name) > _LONGEST_KEY:
        raise DefinitionError(f"annotation key {shown(name)}", (_too_long(name),))
    if not _KEY.fullmatch(name):
        raise DefinitionError(
            f"annotation key {name!r}", ("a key is lower-case words joined by dots, as 'decision.outcome'",)
        )
    if name.startswith(_RESERVED_PREFIX):
        raise DefinitionError(
            f"annotation key {name!r}", (f"keys that start with {_RESERVED_PREFIX!r} are reserved",)
        )
    return TypedKey(name, stability, description)


def by_name(
    attributes: Mapping[Any, W],
) -> dict[Any, W]:  # Any: keys are text or typed keys of any value type
    """Attributes with the names of typed keys in their place."""
    return {key.name if isinstance(key, TypedKey) else key: value for key, value in attributes.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationInput:
    """One annotation as it is asked for, before it has an id and a time.

    Attributes:
        attributes: Values by key, which is a `TypedKey` or text of 1 to 255 characters; each becomes a row, and a
            None value is dropped.
        actor: Who says so.
        payload: A JSON document that belongs to every row of it.
        idempotency_key: A second row of the same run, key and idempotency key is skipped; 1 to 255 characters.
        emit_event: Whether each row that is written also emits `annotation:created`.
    """

    # Unread by pydantic, which would turn a tuple into a list; the kernel refuses what isn't exact JSON.
    attributes: Mapping[Any, SkipValidation[Json]]  # Any: given as text or typed keys, kept as text
    actor: Actor | None = None
    payload: SkipValidation[Json] = None
    idempotency_key: str | None = None
    emit_event: StrictBool = False

    def __post_init__(self) -> None:
        if isinstance(self.attributes, Mapping):
            object.__setattr__(self, "attributes", by_name(self.attributes))


def annotation_problems(annotation: AnnotationInput) -> tuple[Problem, ...]:
    """What no store could keep of an annotation as it was built, by field; its values and its payload aside."""
    found: dict[str, str | None] = {}
    attributes, actor = _unread(annotation.attributes), _unread(annotation.actor)
    if isinstance(attributes, Mapping):
        for key, value in attributes.items():
            if value is not None:
                found[f"$.attributes[{shown(key)}]"] = _key_problem(key)
    else:
        found["$.attributes"] = f"must be a dict of values by key; got {shown(attributes)}"
    if isinstance(actor, Actor):
        found["$.actor.kind"] = _text_problem(actor.kind)
        for name in ("id", "version"):
            member: object = getattr(actor, name)
            found[f"$.actor.{name}"] = None if member is None else _text_problem(member)
    elif actor is not None:
        found["$.actor"] = (
            f'must be an Actor, such as Actor(kind="user", id="ada"), or None; got {shown(actor)}'
        )
    if annotation.idempotency_key is not None:
        found["$.idempotency_key"] = _key_problem(annotation.idempotency_key)
    if not isinstance(_unread(annotation.emit_event), bool):
        found["$.emit_event"] = f"must be True or False; got {shown(annotation.emit_event)}"
    return tuple(
        Problem(path=path, message=problem) for path, problem in found.items() if problem is not None
    )


def _unread(value: object) -> object:
    """A value of which only the author's word says what type it has."""
    return value


def _key_problem(key: object) -> str | None:
    if not isinstance(key, str) or not key:
        return f"a key is text that isn't empty; got {shown(key)}"
    return _too_long(key) if len(key) > _LONGEST_KEY else None


def _too_long(key: str) -> str:
    return f"a key has at most {_LONGEST_KEY} characters, and this has {len(key):,}"


def _text_problem(value: object) -> str | None:
    return None if isinstance(value, str) else f"must be text; got {shown(value)}"
