"""A run's input and config as they are written on a command line."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import click

from stagewright.cli.exact_values import InexactNumberError, exact_value, require_exact_float
from stagewright.cli.json_text import JsonTextError, Written, kind_of, read_json_text
from stagewright.cli.schema_place import Place
from stagewright.definitions import Workflow
from stagewright.json_values import Json

__all__ = ["InputError", "read_config", "read_input"]


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
        InputError: If something can't be read or kept exactly, is given twice, or names a member that the input doesn't
            have.
    """
    members = list(pairs)
    place = Place.root(workflow.input_schema.json_schema())
    whole: Json = None if document is None else _read_document(document, place)
    if not members:
        return {} if document is None and place.is_object else whole
    if whole is None:
        whole = {}
    if not isinstance(whole, dict):
        raise InputError("--input key=value goes with an object; --input-json has something else")
    if workflow.input_schema.takes_nothing:
        raise InputError(f"workflow {workflow.id!r} takes no input")
    return whole | {key: _value(place, key, text, "--input ") for key, text in _split(members, "--input")}


def read_config(workflow: Workflow, pairs: Iterable[str]) -> dict[str, Json]:
    """The config of a run, from members as `stage.key=value`.

    Raises:
        InputError: If something can't be read or kept exactly, is given twice, or names a stage or a member that isn't
            there.
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
        place = Place.root(workflow.stage(stage_id).config_schema.json_schema())
        config.setdefault(stage_id, {})[key] = _value(place, key, text, f"--config {stage_id}.")
    return cast("dict[str, Json]", config)


def _read_document(document: str, place: Place) -> Json:
    text, source = document, "--input-json"
    if document.startswith("@"):
        name = document[1:]
        source = f"--input-json {document}"
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{source}: {error}") from error
    try:
        written = read_json_text(text)
    except JsonTextError as error:
        raise InputError(f"{source}: {error}") from error
    except ValueError as error:
        raise InputError(f"{source} is no JSON: {error}") from error
    return _exactly(written, place, f"{source} $")


def _split(pairs: Iterable[str], option: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{option} {pair!r}: write key=value")
        if key in seen:
            raise InputError(f"{option} {key} is given twice; give it once")
        seen.add(key)
        yield key, text


def _value(whole: Place, key: str, text: str, option: str) -> Json:
    """Text as the schema of a member wants it: as JSON where it parses as JSON of a wanted type, else as it is."""
    name = f"{option}{key}"
    if key not in whole.names and not whole.takes_any_member:
        listed = ", ".join(whole.names) or "none"
        raise InputError(f"{name}: there is no such field; there are {listed}")
    place = whole.member(key)
    wanted = place.types
    if wanted == frozenset({"string"}):
        # Nothing but text can be meant, and quotes belong to it.
        return text
    try:
        written = read_json_text(text)
    except JsonTextError as error:
        raise InputError(f"{name}: {error}") from error
    except ValueError:
        return _as_text(text, wanted, name)
    kind = kind_of(written)
    if wanted is None or kind in wanted or (kind == "integer" and "number" in wanted):
        return _exactly(written, place, name)
    return _as_text(text, wanted, name)


def _as_text(text: str, wanted: frozenset[str] | None, name: str) -> str:
    if wanted is not None and "number" in wanted and "string" not in wanted:
        try:
            require_exact_float(text, name)
        except InexactNumberError as error:
            raise InputError(str(error)) from error
    return text


def _exactly(written: Written, place: Place, name: str) -> Json:
    try:
        return exact_value(written, place, name)
    except InexactNumberError as error:
        raise InputError(str(error)) from error
    except RecursionError as error:
        raise InputError(f"{name}: it is nested too deeply") from error
