"""The fingerprint of a command's body, the same in every process for equal bodies and different for others."""

import base64
import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from stagewright.kernel.command import Command

__all__ = ["fingerprint_of", "is_of"]

_LEFT_OUT: Final = frozenset({"idempotency_key", "abort", "loaded", "wakes_hosts"})
_DEEPEST: Final = 200


def fingerprint_of(command: Command[Any]) -> str:
    """A digest of all fields that say what is to be done, and none that say how.

    A model, a dataclass and the JSON that spells it out are the same body; sets have no order.
    What a handler is going to refuse, such as a value inside itself, still gets one: it differs from most others.
    """
    values = {
        field.name: _plain(getattr(command, field.name), 0)
        for field in fields(command)  # type: ignore[arg-type]  # commands are dataclasses
        if field.name not in _LEFT_OUT
    }
    return hashlib.sha256(_text(values)).hexdigest()


def is_of(kept: str, command: Command[Any], fingerprint: str) -> bool:
    """Whether a key was taken with this command's body.

    A database that creates runs by itself can't compute fingerprints: it keeps `workflow:` and the workflow's id.
    """
    workflow_id = getattr(command, "workflow_id", None)
    return kept == fingerprint or (isinstance(workflow_id, str) and kept == f"workflow:{workflow_id}")


def _text(plain: object) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode(errors="backslashreplace")


def _plain(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        return ["too deep"]
    if value is None or isinstance(value, bool | float) or type(value) is str:
        return value
    if isinstance(value, int) and not isinstance(value, Enum):
        # Hexadecimal, since Python refuses to write very large integers in decimal.
        return ["int", hex(value)]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Mapping):
        pairs = [[_plain(key, depth + 1), _plain(member, depth + 1)] for key, member in value.items()]
        return ["map", *sorted(pairs, key=_text)]
    if isinstance(value, Set):
        return ["set", *sorted((_plain(member, depth + 1) for member in value), key=_text)]
    if isinstance(value, list | tuple):
        return ["list", *(_plain(member, depth + 1) for member in value)]
    if isinstance(value, Enum):
        return _plain(value.value, depth + 1)
    if isinstance(value, BaseModel):
        return _plain({**value.__dict__, **(value.model_extra or {})}, depth + 1)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain({field.name: getattr(value, field.name) for field in fields(value)}, depth + 1)
    try:
        return to_jsonable_python(value)
    except Exception:  # a class that only its own schema knows; its kind and state tell it from others
        return [_kind(value), _plain(vars(value), depth + 1) if hasattr(value, "__dict__") else repr(value)]


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
