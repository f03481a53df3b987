"""pydantic's validator and serialiser for one type, set up so that bytes travel as base64."""

import inspect
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import VERSION, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic_core import CoreSchema, SchemaSerializer, SchemaValidator

from stagewright.errors import DefinitionError

__all__ = ["Codec", "build_codec"]

_BYTES_CONFIG: Final = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}
_BYTES_FIX: Final = (
    'use pydantic 2.13, or give the model ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")'
)
_NAMED: Final = frozenset({"model", "dataclass", "typed-dict"})
_USER_DATA: Final = frozenset({"default", "expected", "metadata", "context"})
_CAN_SKIP_PREBUILT: Final = "_use_prebuilt" in inspect.signature(SchemaSerializer).parameters
_HAS_PREBUILT: Final = tuple(int(part) for part in VERSION.split(".")[:2]) >= (2, 11)


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type are read, written and described."""

    adapter: TypeAdapter[Any]
    validator: SchemaValidator
    serializer: SchemaSerializer


def build_codec(annotation: object) -> Codec | None:
    """Build the codec of a type, or return None while the type names classes that don't exist yet.

    Raises:
        DefinitionError: If pydantic can't make a schema of the type.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, annotation))
        schema = adapter.core_schema
        validator, serializer = adapter.validator, adapter.serializer
        if not isinstance(schema, dict) or not _is_built(validator, serializer):
            return None
    except PydanticUndefinedAnnotation:
        return None
    except PydanticUserError as error:
        if error.code in ("class-not-fully-defined", "undefined-annotation"):
            return None
        raise _unusable(annotation, error) from error
    except Exception as error:
        raise _unusable(annotation, error) from error
    if _has_bytes(schema):
        validator, serializer = _with_base64(annotation, schema)
    return Codec(adapter, cast(SchemaValidator, validator), serializer)


def _is_built(validator: object, serializer: object) -> bool:
    # pydantic puts mocks in the place of what can't be built yet.
    return "Mock" not in type(validator).__name__ and "Mock" not in type(serializer).__name__


def _unusable(annotation: object, error: Exception) -> DefinitionError:
    text = str(error).split("\n", 1)[0].rstrip(".")
    return DefinitionError(f"the type {annotation!r}", (f"pydantic can't make a schema of it: {text}",))


def _has_bytes(node: object) -> bool:
    if isinstance(node, dict):
        mapping = cast("dict[str, object]", node)
        return mapping.get("type") == "bytes" or any(
            _has_bytes(member) for key, member in mapping.items() if key not in _USER_DATA
        )
    return isinstance(node, list | tuple) and any(_has_bytes(member) for member in cast("list[object]", node))


def _with_base64(annotation: object, schema: CoreSchema) -> tuple[SchemaValidator, SchemaSerializer]:
    """Compile the schema anew with base64 for bytes, also inside models, whose own config hides an outer one."""
    changed = cast(CoreSchema, _rewritten(schema))
    options: dict[str, Any] = {"_use_prebuilt": False} if _CAN_SKIP_PREBUILT else {}
    if _HAS_PREBUILT and not _CAN_SKIP_PREBUILT and _nests_own_bytes(schema, depth=0):
        raise DefinitionError(
            f"the type {annotation!r}",
            (
                f"pydantic {VERSION} can't write the bytes of a model inside another type as base64; {_BYTES_FIX}",
            ),
        )
    config = cast(Any, _BYTES_CONFIG)
    return SchemaValidator(changed, config, **options), SchemaSerializer(changed, config, **options)


def _rewritten(node: object) -> object:
    if isinstance(node, dict):
        mapping = cast("dict[str, object]", node)
        changed = {
            key: member if key in _USER_DATA else _rewritten(member) for key, member in mapping.items()
        }
        if mapping.get("type") in _NAMED and "config" in mapping:
            changed["config"] = {**_BYTES_CONFIG, **cast("dict[str, object]", mapping["config"])}
        return changed
    if isinstance(node, list):
        return [_rewritten(member) for member in cast("list[object]", node)]
    if isinstance(node, tuple):
        return tuple(_rewritten(member) for member in cast("tuple[object, ...]", node))
    return node


def _nests_own_bytes(node: object, *, depth: int) -> bool:
    if isinstance(node, dict):
        mapping = cast("dict[str, object]", node)
        if depth and mapping.get("type") in _NAMED and "config" in mapping and _has_bytes(mapping):
            return "ser_json_bytes" not in cast("dict[str, object]", mapping["config"])
        members = [member for key, member in mapping.items() if key not in _USER_DATA]
        return any(_nests_own_bytes(member, depth=depth + 1) for member in members)
    if isinstance(node, list | tuple):
        return any(_nests_own_bytes(member, depth=depth + 1) for member in cast("list[object]", node))
    return False
