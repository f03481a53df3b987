"""JSON as it was written, as the value that a run gets: exactly that, or an error."""

from decimal import Decimal, InvalidOperation
from typing import Final

from stagewright.cli.json_text import NumberText, Written
from stagewright.cli.schema_place import Place
from stagewright.json_values import Json, child_path

__all__ = ["InexactNumberError", "exact_value", "require_exact_float"]

_LONGEST_SHOWN: Final = 60


class InexactNumberError(Exception):
    """A number that can't be given without losing some of its digits; its text names place, number and fix."""


def exact_value(written: Written, place: Place, name: str) -> Json:
    """The JSON value that says the same.

    A number becomes text where the schema takes both and the number would be shown otherwise, as `1.10` for a Decimal.

    Args:
        written: What was written.
        place: Where it goes.
        name: What that is called in an error.

    Raises:
        InexactNumberError: If a number would lose digits.
    """
    if isinstance(written, NumberText):
        return _number(written, place.types, name)
    if isinstance(written, dict):
        return {
            key: exact_value(member, place.member(key), child_path(name, key))
            for key, member in written.items()
        }
    if isinstance(written, list):
        return [
            exact_value(item, place.item(index), child_path(name, index))
            for index, item in enumerate(written)
        ]
    return written


def require_exact_float(text: str, name: str) -> None:
    """Refuse a text that reads as a number of which a float would lose digits; any other text passes.

    Raises:
        InexactNumberError: If it would.
    """
    try:
        is_number = Decimal(text).is_finite()
    except InvalidOperation:
        return
    if is_number and not _says(_float(text), text):
        raise _inexact(name, text, _float(text), typed=True)


def _number(number: NumberText, types: frozenset[str] | None, name: str) -> Json:
    value = _integer(number.text) if number.is_integer else _float(number.text)
    is_read_as_float = types is not None and "number" in types and "integer" not in types
    read = _float(number.text) if is_read_as_float else value
    if value is not None and read == value and repr(value) == number.text:
        return value
    if types is not None and "string" in types and ("number" in types or "integer" in types):
        return number.text
    if _says(read, number.text):
        return value
    raise _inexact(name, number.text, read, typed=types is not None)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:  # Python reads no integer of more than 4,300 digits.
        return None


def _float(text: str) -> float | None:
    value = float(text)
    return None if value in (float("inf"), float("-inf")) else value


def _says(value: float | None, text: str) -> bool:
    """Whether a number, as it is shown, is the one that was written."""
    if value is None:
        return False
    try:
        return Decimal(repr(value)) == Decimal(text)
    except InvalidOperation:  # An exponent beyond every number.
        return False


def _inexact(name: str, text: str, read: float | None, *, typed: bool) -> InexactNumberError:
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    loss = "it is beyond every number here" if read is None else f"as a float it would become {read!r}"
    shorter = "" if read is None else f"write {read!r}, or "
    fix = "declare the field as Decimal" if typed else "give it as text, in double quotes"
    return InexactNumberError(f"{name}={shown}: {loss}; {shorter}{fix}")
