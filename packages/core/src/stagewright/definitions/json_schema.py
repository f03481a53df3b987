"""JSON Schemas in one canonical form, so that equal types give equal text on every Python and pydantic."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from stagewright.json_values import Json

__all__ = ["UNREPRESENTABLE", "canonical_json", "canonical_json_schema"]

UNREPRESENTABLE: Final = "unrepresentable"
"""The key that marks a part that JSON Schema can't express."""

_ANNOTATIONS: Final = frozenset(
    {
        "title",
        "description",
        "examples",
        "example",
        "default",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
    }
)
_SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_SCHEMA_LISTS: Final = frozenset({"prefixItems", "allOf"})
_SCHEMA_SETS: Final = frozenset({"anyOf", "oneOf"})
_SCHEMAS: Final = frozenset(
    {
        "items",
        "additionalProperties",
        "not",
        "contains",
        "propertyNames",
        "if",
        "then",
        "else",
        "unevaluatedProperties",
        "contentSchema",
    }
)
_VALUE_SETS: Final = frozenset({"required", "enum", "type"})
_DECIMAL_LIMITS: Final = frozenset({"multiple_of", "le", "ge", "lt", "gt", "max_digits", "decimal_places"})
_REF: Final = "#/$defs/"
_LARGEST_EXACT: Final = 2**53


def canonical_json(value: Json) -> str:
    """The one text of a JSON document: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def canonical_json_schema(adapter: TypeAdapter[Any]) -> Json:
    """The structure that a type accepts as JSON; names, texts and defaults of the source don't count.

    A part that JSON Schema can't express becomes `{"unrepresentable": <kind>}`. It never raises.
    """
    try:
        generated = adapter.json_schema(schema_generator=_Generator, mode="validation")
        return _Canonical(generated).document()
    except Exception as error:
        return {UNREPRESENTABLE: type(error).__name__}


class _Generator(GenerateJsonSchema):
    """pydantic's generator, with fixed answers where its versions differ or where it would raise."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the base class has it

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {UNREPRESENTABLE: schema["type"]}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        limits = {
            key: str(value) for key, value in schema.items() if key in _DECIMAL_LIMITS and value is not None
        }
        return {"type": ["number", "string"], "format": "decimal", **limits}

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        named = {"minLength": schema.get("min_length"), "maxLength": schema.get("max_length")}
        lengths = {key: value for key, value in named.items() if value is not None}
        return {"type": "string", "format": "base64url", **lengths}


class _Canonical:
    """Rewrites a generated schema: definitions are told apart by their structure and named by first use.

    The members of a union are ordered by their structure as well: Python's typing caches by equality, and
    `int | str` equals `str | int`, so which order a type has can depend on what was imported first.
    """

    def __init__(self, generated: dict[str, Any]) -> None:
        definitions = cast("dict[str, Any]", generated.get("$defs", {}))
        self._definitions = {str(_plain(name)): _stripped(_plain(body)) for name, body in definitions.items()}
        self._root = _stripped(_plain({key: value for key, value in generated.items() if key != "$defs"}))
        self._digests = self._structures()
        self._names: dict[str, str] = {}
        self._bodies: dict[str, Json] = {}

    def document(self) -> Json:
        root = self._root
        seen = set[str]()
        while isinstance(root, dict) and set(root) == {"$ref"}:
            name = _name_in(root["$ref"])
            if name is None or name in seen or name not in self._definitions:
                break
            seen.add(name)
            root = self._definitions[name]
        body = self._renamed(root)
        if not self._bodies:
            return body
        return {"schema": body, "$defs": dict(self._bodies)}

    def _structures(self) -> dict[str, str]:
        """A digest of each definition that depends on its structure alone, also where definitions form cycles."""
        digests = dict.fromkeys(self._definitions, "")
        for _ in range(len(self._definitions) + 1):
            before = len(set(digests.values()))
            digests = {
                name: hashlib.sha256(canonical_json(_ordered(body, digests)).encode()).hexdigest()
                for name, body in self._definitions.items()
            }
            if len(set(digests.values())) == before == len(digests):
                break
        return digests

    def _renamed(self, node: Json) -> Json:
        if not isinstance(node, dict):
            return node
        branches = {key: _sorted_by_structure(node[key], self._digests) for key in _SCHEMA_SETS & node.keys()}
        ordered = {key: branches.get(key, node[key]) for key in sorted(node)}
        result = _with_parts(ordered, self._renamed)
        name = _name_in(node.get("$ref"))
        return result if name is None else {**result, "$ref": self._reference(name)}

    def _reference(self, name: str) -> str:
        digest = self._digests.get(name)
        if digest is None:
            return _REF + name
        if digest not in self._names:
            short = self._names[digest] = f"D{len(self._names) + 1}"
            self._bodies[short] = {}
            self._bodies[short] = self._renamed(self._definitions[name])
        return _REF + self._names[digest]


def _name_in(reference: Json) -> str | None:
    if isinstance(reference, str) and reference.startswith(_REF):
        return reference[len(_REF) :]
    return None


def _ordered(node: Json, digests: Mapping[str, str]) -> Json:
    """The schema with unions sorted and each reference replaced by the digest of what it names."""
    if not isinstance(node, dict):
        return node
    result = _with_parts(node, lambda part: _ordered(part, digests))
    for key in _SCHEMA_SETS & result.keys():
        result[key] = _sorted_by_structure(result[key], digests)
    name = _name_in(node.get("$ref"))
    return result if name is None else {**result, "$ref": digests.get(name, name)}


def _sorted_by_structure(branches: Json, digests: Mapping[str, str]) -> Json:
    if not isinstance(branches, list):
        return branches
    return sorted(branches, key=lambda branch: canonical_json(_ordered(branch, digests)))


def _with_parts(schema: Mapping[str, Json], convert: Callable[[Json], Json]) -> dict[str, Json]:
    """The schema with each schema inside it converted; goes by position, as a property may have any name."""
    result: dict[str, Json] = {}
    for key, value in schema.items():
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            result[key] = {name: convert(value[name]) for name in sorted(value)}
        elif (key in _SCHEMA_LISTS or key in _SCHEMA_SETS) and isinstance(value, list):
            result[key] = [convert(member) for member in value]
        elif key in _SCHEMAS:
            result[key] = convert(value)
        else:
            result[key] = value
    return result


def _stripped(schema: Json) -> Json:
    """A schema without what only people read, in the one form for what pydantic's versions write differently."""
    if not isinstance(schema, dict):
        return schema
    result = _with_parts({key: value for key, value in schema.items() if key not in _ANNOTATIONS}, _stripped)
    wrapped = result.get("allOf")
    if isinstance(wrapped, list) and len(wrapped) == 1 and isinstance(wrapped[0], dict):
        del result["allOf"]
        result.update(wrapped[0])
    if result.get("additionalProperties") is True and "properties" not in result:
        del result["additionalProperties"]
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "enum" in result:
        result.pop("type", None)
    for key in _VALUE_SETS:
        values = result.get(key)
        if isinstance(values, list):
            result[key] = sorted(values, key=canonical_json)
    discriminator = result.get("discriminator")
    if isinstance(discriminator, dict):
        result["discriminator"] = {key: value for key, value in discriminator.items() if key != "mapping"}
    return result


def _plain(value: object) -> Json:
    """A value that every store gives back as it is: no float that equals an integer, nothing beyond exactness."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() and abs(value) <= _LARGEST_EXACT else value
    if isinstance(value, int):
        return int(value) if abs(value) <= _LARGEST_EXACT else str(int(value))
    if isinstance(value, str):
        return str(value).replace("\x00", "\\u0000").encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return {cast(str, _plain(str(name))): _plain(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in cast("list[object]", value)]
    return repr(type(value).__qualname__)
