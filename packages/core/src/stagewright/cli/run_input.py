"""A run's input and config as they are written on a command line."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click

from stagewright.definitions import Workflow
from stagewright.json_values import Json

__all__ = ["InputError", "read_config", "read_input"]

_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class InputError(click.ClickException):
    """An input or a config on the command line that can't be read, or doesn't fit its schema."""

    exit_code = 2


def read_input(workflow: Workflow, document: str | None, pairs: Iterable[str]) -> Json:
    """The input of a run.

    Args:
        workflow: Whose input it is.
        document: The whole as JSON text; `@file` reads a file, `@-` standard input.
        pairs: Members as `key=value`, over those of the document.

    Raises:
        InputError: If something can't be read or names a member that the input doesn't have.
    """
    members = list(pairs)
    whole: Json = None if document is None else _read_document(document)
    if not members:
        return {} if document is None and _members(workflow.input_schema.json_schema()) is not None else whole
    if whole is None:
        whole = {}
    if not isinstance(whole, dict):
        raise InputError("--input key=value goes with an object; --input-json has something else")
    schema = workflow.input_schema.json_schema()
    if workflow.input_schema.takes_nothing:
        raise InputError(f"workflow {workflow.id!r} takes no input")
    return whole | {key: _value(schema, key, text, "--input ") for key, text in _split(members, "--input")}


def read_config(workflow: Workflow, pairs: Iterable[str]) -> dict[str, Json]:
    """The config of a run, from members as `stage.key=value`.

    Raises:
        InputError: If something can't be read or names a stage or a member that isn't there.
    """
    config: dict[str, dict[str, Json]] = {}
    for path, text in _split(pairs, "--config"):
        stage_id, dot, key = path.partition(".")
        if not dot or not key:
            raise InputError(f"--config {path}={text}: write stage.key=value")
        if stage_id not in workflow.stage_ids:
            listed = ", ".join(workflow.stage_ids)
            raise InputError(
                f"--config {path}: workflow {workflow.id!r} has no stage {stage_id!r}; it has {listed}"
            )
        schema = workflow.stage(stage_id).config_schema.json_schema()
        config.setdefault(stage_id, {})[key] = _value(schema, key, text, f"--config {stage_id}.")
    return cast("dict[str, Json]", config)


def _read_document(document: str) -> Json:
    text, source = document, "--input-json"
    if document.startswith("@"):
        name = document[1:]
        source = f"--input-json {document}"
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{source}: {error}") from error
    try:
        value: Json = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source} is no JSON: {error}") from error
    return value


def _split(pairs: Iterable[str], option: str) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{option} {pair!r}: write key=value")
        yield key, text


def _value(schema: Json, key: str, text: str, option: str) -> Json:
    """Text as the schema of a member wants it: as JSON where it parses as JSON of a wanted type, else as it is."""
    members = _members(schema)
    wanted: set[str] | None = None
    if members is not None:
        known, others = members
        if key in known:
            wanted = _types(known[key], schema)
        elif others is False:
            listed = ", ".join(known) or "none"
            raise InputError(f"{option}{key}: there is no such field; there are {listed}")
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    if wanted is None:
        return value
    kind = "null" if value is None else _JSON_TYPES[type(value)]
    fits = kind in wanted or (kind == "integer" and "number" in wanted)
    # A text that happens to be quoted stays as it was written.
    return value if fits and kind != "string" else text


def _members(schema: Json) -> tuple[Mapping[str, Json], Json] | None:
    """The schemas of an object's members by name, and what others may be; None when it is no object."""
    resolved = _resolved(schema, schema)
    if not isinstance(resolved, dict) or "object" not in _types(resolved, schema):
        return None
    known = resolved.get("properties", {})
    declared = resolved.get("additionalProperties")
    others = declared if declared is not None else "properties" not in resolved
    return cast("Mapping[str, Json]", known), others


def _types(schema: Json, root: Json) -> set[str]:
    """The JSON types that a schema accepts; all of them where it says nothing."""
    resolved = _resolved(schema, root)
    if not isinstance(resolved, dict):
        return {*_JSON_TYPES.values(), "null"}
    for key in ("anyOf", "oneOf", "allOf"):
        choices = resolved.get(key)
        if isinstance(choices, list):
            return set[str]().union(*(_types(choice, root) for choice in choices))
    if "enum" in resolved or "const" in resolved:
        values = cast("list[Any]", resolved.get("enum", [resolved.get("const")]))
        return {"null" if value is None else _JSON_TYPES[type(value)] for value in values}
    named = resolved.get("type")
    if isinstance(named, str):
        return {named}
    return {*_JSON_TYPES.values(), "null"}


def _resolved(schema: Json, root: Json) -> Json:
    """The schema that a `$ref` into the document's definitions stands for, or the document's own `schema`."""
    seen: set[str] = set()
    if schema is root and isinstance(schema, dict) and "$defs" in schema:
        schema = schema.get("schema")
    while (
        isinstance(schema, dict)
        and isinstance(reference := schema.get("$ref"), str)
        and reference not in seen
    ):
        seen.add(reference)
        definitions = root.get("$defs") if isinstance(root, dict) else None
        name = reference.rpartition("/")[2]
        schema = definitions.get(name) if isinstance(definitions, dict) else None
    return schema
