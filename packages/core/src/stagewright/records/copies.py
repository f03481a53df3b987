"""Copies of records that share nothing that anybody could change."""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stagewright.records.unset import set_fields

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["detached", "detached_fields", "detached_value"]

R = TypeVar("R", bound="DataclassInstance")
V = TypeVar("V")


def detached(record: R) -> R:
    """The record itself if all of it is immutable, else one whose lists and dicts are its own."""
    copied: dict[str, Any] = {}  # Any: a record's fields have many types
    for name in _field_names(type(record)):
        value = getattr(record, name)
        if isinstance(value, dict | list):
            copied[name] = detached_value(value)
    return replace(record, **copied) if copied else record


def detached_fields(patch: "DataclassInstance") -> Mapping[str, Any]:  # Any: as `set_fields`
    """The fields of a patch that are to be written, their lists and dicts copied."""
    return {name: detached_value(value) for name, value in set_fields(patch).items()}


def detached_value(value: V) -> V:
    """A copy of lists and dicts all the way down; anything else is immutable and is returned as it is."""
    if isinstance(value, dict):
        return cast(V, {name: detached_value(member) for name, member in value.items()})
    if isinstance(value, list):
        return cast(V, [detached_value(member) for member in value])
    return value


@cache
def _field_names(kind: "type[DataclassInstance]") -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
