"""What a JSON Schema says of one place in a value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from stagewright.json_values import Json

__all__ = ["Place"]

_JSON_TYPES: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a value, such as a member of the input.

    Attributes:
        document: The schema of the whole, with its definitions.
        choices: The schemas of which a value here fits one.
    """

    document: Json
    choices: tuple[Json, ...]

    @classmethod
    def root(cls, document: Json) -> Self:
        """The whole value of a schema."""
        schema = document
        if isinstance(document, dict) and "$defs" in document:
            schema = document.get("schema")
        return cls(document, tuple(_choices(schema, document)))

    @property
    def types(self) -> frozenset[str] | None:
        """The JSON types that are accepted here; None where anything may be."""
        accepted: set[str] = set()
        for choice in self.choices:
            named = _types(choice)
            if named is None:
                return None
            accepted |= named
        return frozenset(accepted) if self.choices else None

    @property
    def is_object(self) -> bool:
        """Whether an object may be here."""
        return self.types is None or any(True for _ in self._objects())

    @property
    def names(self) -> tuple[str, ...]:
        """The members that are named, if an object may be here."""
        return tuple(dict.fromkeys(name for choice in self._objects() for name in _properties(choice)))

    @property
    def takes_any_member(self) -> bool:
        """Whether an object here may have members that aren't named."""
        return self.types is None or any(_others(choice) is not False for choice in self._objects())

    def member(self, name: str) -> "Place":
        """The place of a member of the object here."""
        found: list[Json] = []
        for choice in self._objects():
            declared = _properties(choice).get(name, _others(choice))
            found += _choices({} if declared is True else declared, self.document)
        return Place(self.document, tuple(found))

    def item(self, index: int) -> "Place":
        """The place of an item of the list here."""
        found: list[Json] = []
        for choice in self.choices:
            if isinstance(choice, dict):
                first = cast("list[Json]", choice.get("prefixItems", []))
                declared = first[index] if index < len(first) else choice.get("items", {})
                found += _choices(declared, self.document)
        return Place(self.document, tuple(found))

    def _objects(self) -> Iterator[dict[str, Json]]:
        for choice in self.choices:
            if isinstance(choice, dict) and "object" in (_types(choice) or ()):
                yield choice


def _choices(schema: Json, document: Json, seen: frozenset[str] = frozenset()) -> Iterator[Json]:
    """A schema without references: the one, or all that it chooses from; none for what can't be."""
    if schema is False:
        return
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference not in seen:
                yield from _choices(_definition(reference, document), document, seen | {reference})
            return
        for key in ("anyOf", "oneOf", "allOf"):
            several = schema.get(key)
            if isinstance(several, list):
                for one in several:
                    yield from _choices(one, document, seen)
                return
    yield schema


def _definition(reference: str, document: Json) -> Json:
    definitions = document.get("$defs") if isinstance(document, dict) else None
    return definitions.get(reference.rpartition("/")[2]) if isinstance(definitions, dict) else None


def _types(choice: Json) -> set[str] | None:
    if not isinstance(choice, dict):
        return None
    if "enum" in choice or "const" in choice:
        values = cast("list[Any]", choice.get("enum", [choice.get("const")]))
        return {_JSON_TYPES[type(value)] for value in values}
    named = choice.get("type")
    if isinstance(named, str):
        return {named}
    return set(cast("list[str]", named)) if isinstance(named, list) else None


def _properties(choice: dict[str, Json]) -> Mapping[str, Json]:
    return cast("Mapping[str, Json]", choice.get("properties", {}))


def _others(choice: dict[str, Json]) -> Json:
    """What members without a name may be; False for none. A model that says nothing takes none."""
    declared = choice.get("additionalProperties")
    return declared if declared is not None else "properties" not in choice
