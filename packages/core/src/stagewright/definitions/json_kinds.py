"""Which kinds of JSON a type can accept, and whether one stage's output can ever be another's input."""

from collections.abc import Mapping, Set
from typing import Any, Final, cast

from stagewright.definitions.schema import Schema
from stagewright.errors import DefinitionError

__all__ = ["accepts_objects", "provable_mismatch"]

_Node = Mapping[str, Any]

_SCALARS: Final = frozenset({"string", "number", "boolean"})
_ACCEPTS: Final[Mapping[str, frozenset[str]]] = {
    "str": frozenset({"string"}),
    "int": _SCALARS,
    "float": _SCALARS,
    "bool": _SCALARS,
    "list": frozenset({"array"}),
    "dict": frozenset({"object"}),
    "model-fields": frozenset({"object"}),
    "typed-dict": frozenset({"object"}),
    "none": frozenset({"null"}),
}
_PRODUCES: Final[Mapping[str, frozenset[str]]] = {
    **_ACCEPTS,
    "int": frozenset({"number"}),
    "float": frozenset({"number"}),
    "bool": frozenset({"boolean"}),
}


def accepts_objects(schema: Schema[Any]) -> bool | None:
    """Whether a type accepts JSON objects; None when that can't be told."""
    node = _core(schema)
    kinds = None if node is None else _ACCEPTS.get(_plain(node)["type"])
    return None if kinds is None else "object" in kinds


def provable_mismatch(
    produced: Schema[Any] | Mapping[str, Schema[Any]], consumer: Schema[Any], *, may_have_more: bool = False
) -> str | None:
    """Why what is produced can never be what a consumer takes, or None when it may be.

    Args:
        produced: The schema of an output, or those of a parallel group by stage id.
        consumer: The schema of an input.
        may_have_more: Whether what is produced may hold fields that its type doesn't name, as a caller's JSON may.
    """
    if consumer.takes_nothing:
        return None
    target = _core(consumer)
    if target is None:
        return None
    if isinstance(produced, Mapping):
        members = {name: _core(schema) for name, schema in produced.items()}
        return _against_object(members, _plain(target))
    if produced.takes_nothing:
        return None
    source = _core(produced)
    return None if source is None else _compare(_plain(source), _plain(target), may_have_more=may_have_more)


def _core(schema: Schema[Any]) -> _Node | None:
    try:
        return schema.codec.adapter.core_schema
    except DefinitionError:  # names a class that doesn't exist yet
        return None


def _plain(node: _Node) -> _Node:
    """What stands inside the wrappers that don't change which JSON is taken."""
    while True:
        if node.get("serialization") is not None:
            return {"type": "unknown"}
        if node["type"] == "definitions":
            definitions = {one["ref"]: one for one in node["definitions"] if "ref" in one}
            node = node["schema"]
            if node["type"] == "definition-ref":
                node = definitions.get(node["schema_ref"], {"type": "unknown"})
        elif node["type"] == "model" and not node.get("custom_init") and not node.get("root_model"):
            node = node["schema"]
        else:
            return node


def _compare(source: _Node, target: _Node, *, may_have_more: bool) -> str | None:
    gives, takes = _PRODUCES.get(source["type"]), _ACCEPTS.get(target["type"])
    if gives is None or takes is None:
        return None
    if not gives & takes:
        return f"it {_taken_and_given(takes, gives)}"
    if source["type"] in ("model-fields", "typed-dict") and source.get("extras_schema") is None:
        if (
            source.get("extra_behavior") == "allow"
            or _config_of(source).get("extra_fields_behavior") == "allow"
        ):
            return None
        fields: dict[str, _Node | None] = {}
        for name, field in source["fields"].items():
            if field.get("serialization_exclude"):
                continue
            fields[field.get("serialization_alias") or name] = _as_field(field)
        return _against_object(fields, target, may_have_more=may_have_more)
    return None


def _taken_and_given(takes: Set[str], gives: Set[str]) -> str:
    return f"takes a JSON {' or '.join(sorted(takes))}, and is given a JSON {' or '.join(sorted(gives))}"


def _config_of(node: _Node) -> Mapping[str, Any]:
    return node.get("config") or {}


def _as_field(field: _Node) -> _Node:
    inner = field["schema"]
    while inner["type"] in ("default", "nullable"):
        if inner["type"] == "nullable":
            return {"type": "unknown"}
        inner = inner["schema"]
    return cast(_Node, inner)


def _against_object(
    given: Mapping[str, _Node | None], target: _Node, *, may_have_more: bool = False
) -> str | None:
    if target["type"] in ("str", "int", "float", "bool", "list", "none"):
        return f"it {_taken_and_given(_ACCEPTS[target['type']], {'object'})}"
    if target["type"] not in ("model-fields", "typed-dict"):
        return None
    problems: list[str] = []
    for name, field in target["fields"].items():
        alias = field.get("validation_alias", name)
        if not isinstance(alias, str):
            return None
        names = {alias, name}
        found = next((one for one in names if one in given), None)
        if found is None:
            if _is_required(field, target) and not may_have_more:
                problems.append(f"its field {alias!r} is required and never given")
            continue
        source, wanted = given[found], _as_field(field)
        gives = None if source is None else _PRODUCES.get(_plain(source)["type"])
        takes = _ACCEPTS.get(_plain(wanted)["type"]) if field["schema"]["type"] != "nullable" else None
        if gives is not None and takes is not None and not gives & takes:
            problems.append(f"its field {alias!r} {_taken_and_given(takes, gives)}")
    return "; ".join(problems) or None


def _is_required(field: _Node, target: _Node) -> bool:
    if target["type"] == "typed-dict":
        return bool(field.get("required", target.get("total", True)))
    return bool(field["schema"]["type"] != "default")
