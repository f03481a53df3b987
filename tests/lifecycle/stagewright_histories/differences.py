"""Where two values differ, as people read it: a path, and what is there in either."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

__all__ = ["Names", "differences"]

_GONE = "nothing"
_GENERATED = re.compile(r"id-\d{6}|wfe-[0-9a-f]{32}")


class Names:
    """Names for what a store was given generated ids for, in the order in which they come to light."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def put_into(self, text: str) -> str:
        """The text with names in the place of generated ids, and of keys that are made of them."""
        return _GENERATED.sub(lambda found: self._name(found[0]), text)

    def _name(self, id: str) -> str:
        return self._names.setdefault(id, f"<{len(self._names) + 1}>")


def differences(one: object, names: Names, other: object, other_names: Names) -> list[str]:
    """Each place where they differ, in value or in type; of a mapping the order of its keys doesn't matter.

    Args:
        one: A value.
        names: The names of its store.
        other: Another value.
        other_names: The names of that one's store.
    """
    # Most of the time they are written alike, which is told soonest. An error's text may hide what its fields say.
    are_alike = names.put_into(repr(one)) == other_names.put_into(repr(other))
    if are_alike and not isinstance(one, BaseException):
        return []
    ones = {names.put_into(path): names.put_into(text) for path, text in _leaves("", one)}
    others = {other_names.put_into(path): other_names.put_into(text) for path, text in _leaves("", other)}
    return [
        f"{path}: {ones.get(path, _GONE)} and {others.get(path, _GONE)}"
        for path in dict.fromkeys((*ones, *others))
        if ones.get(path) != others.get(path)
    ]


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case BaseException():
            yield f"{path}!", type(value).__name__
            yield from _leaves(f"{path}.args", value.args)
            yield from _leaves(path, value.__dict__)
        case _ if is_dataclass(value):
            yield f"{path}!", type(value).__name__
            for field in fields(value):
                yield from _leaves(f"{path}.{field.name}", getattr(value, field.name))
        case Mapping():
            yield f"{path}!", "a mapping"
            for key in sorted(value, key=repr):
                yield from _leaves(f"{path}[{key!r}]", value[key])
        case str() | bytes():
            yield path, repr(value)
        case Set():
            yield from _leaves(path, sorted(value, key=repr))
        case Sequence():
            yield f"{path}!", f"{len(value)} in a row"
            for number, item in enumerate(value):
                yield from _leaves(f"{path}[{number}]", item)
        case datetime():
            yield path, value.isoformat()
        case Decimal():
            yield path, f"Decimal {value.normalize()}"
        case _:
            yield path, f"{type(value).__name__} {value!r}"
