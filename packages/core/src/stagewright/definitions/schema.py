"""A declared type: how values of it become JSON, how JSON becomes values of it, and what it looks like."""

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Generic, Literal, Union, cast, get_args, get_origin, overload

import pydantic_core
from typing_extensions import TypedDict, TypeVar

from stagewright.definitions.codec import Codec, build_codec
from stagewright.definitions.coercion import find_coercion, find_inexact_float
from stagewright.definitions.exactness import Difference, find_difference, refuse_unkeepable
from stagewright.definitions.failed_writes import why_unread, why_unwritten
from stagewright.definitions.json_schema import canonical_json_schema
from stagewright.definitions.quick_checks import is_exact_json, is_plainly_kept, is_plainly_same
from stagewright.definitions.schema_problems import problems_of
from stagewright.errors import DefinitionError, Problem, SchemaMismatchError, ValueNotSerializableError
from stagewright.json_values import Json, require_json

__all__ = ["Schema"]

_NUL: Final = rb"\u0000"
_LONGEST_INTEGER: Final = 4_200
_DIGITS_AS_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Schema(Generic[T_co]):
    """Any type that a pydantic `TypeAdapter` accepts, held to one rule: a value and its JSON form say the same.

    What is written is read back at once, and refused when it differs in value or type from what went in. A Python
    value must be of the declared type already; only a dict may stand for the model, dataclass or typed dict that is
    declared, and a whole number for an equal float.

    JSON, which `accept` and `load` take, is parsed as pydantic parses JSON: a date is text, a set is a list, the
    text "5" does for an integer, and `bytes` are base64, so that text given for `bytes` is always decoded.
    """

    __slots__ = ("_codec", "_is_native", "_json_schema", "_takes_nothing", "annotation")

    annotation: object
    """The type, as it was given."""

    def __init__(self, annotation: object, *, takes_nothing: bool = False) -> None:
        """Use `Schema.of` or `Schema.none`."""
        self.annotation = annotation
        self._takes_nothing = takes_nothing
        self._is_native = _is_native(annotation)
        self._codec = build_codec(annotation)
        self._json_schema: list[Json] = []

    @overload
    @classmethod
    def of(cls, annotation: type[T]) -> "Schema[T]": ...
    @overload
    @classmethod
    def of(cls, annotation: object) -> "Schema[Any]": ...
    @classmethod
    def of(cls, annotation: object) -> "Schema[Any]":
        """The schema of a type.

        A type that names classes which don't exist yet is completed on first use.

        Raises:
            DefinitionError: If pydantic can't make a schema of the type.
        """
        return Schema(annotation)

    @classmethod
    def none(cls) -> "Schema[None]":
        """The schema of "takes nothing": it accepts None and `{}`, and reads anything as None."""
        return Schema(None, takes_nothing=True)

    @classmethod
    def of_members(cls, members: "Mapping[str, Schema[Any]]") -> "Schema[dict[str, Any]]":
        """The schema of a dict with exactly these keys."""
        make = cast("Callable[[str, dict[str, object]], object]", TypedDict)
        return Schema(make("Outputs", {name: schema.annotation for name, schema in members.items()}))

    @property
    def takes_nothing(self) -> bool:
        """Whether this is `Schema.none()`."""
        return self._takes_nothing

    def load(self, stored: Json, *, what: str) -> T_co:
        """Read stored JSON as the declared type.

        Raises:
            SchemaMismatchError: If it doesn't fit.
        """
        if self._takes_nothing:
            return cast(T_co, None)
        return self._read(stored, what)

    def dump(self, value: object, *, what: str) -> Json:
        """The JSON form of a value of the declared type.

        Raises:
            SchemaMismatchError: If the value doesn't fit the type.
            ValueNotSerializableError: If it fits, and its JSON form would not give it back.
        """
        return self.keep(value, what=what)[0]

    def keep(self, value: object, *, what: str) -> tuple[Json, T_co]:
        """The JSON form of a value, and the value as that form gives it back; raises like `dump`."""
        if self._takes_nothing:
            self._require_nothing(value, what)
            return None, cast(T_co, None)
        if self._is_native and _is_json(value):
            validated = self._validated(value, what)
            if not is_plainly_same(value, validated):
                _refuse_difference(find_coercion(value, validated), what)
            text = pydantic_core.to_json(validated)
            return cast(Json, pydantic_core.from_json(text)), self._parsed(text)
        if not is_plainly_kept(value):
            refuse_unkeepable(value, what=what)
        validated = self._validated(value, what)
        text = self._written(validated, what)
        stored, back = self._read_back(text, validated, what)
        if not is_plainly_same(validated, back):
            _refuse_difference(find_difference(validated, back), what)
        if not is_plainly_same(value, validated):
            _refuse_difference(find_coercion(value, validated), what)
        return (require_json(stored, what=what) if _is_suspect(text) else stored), back

    def accept(self, value: object, *, what: str) -> Json:
        """The JSON form of what a caller gave, once it fits: exact JSON stays as it is, other values are dumped.

        Exact JSON is parsed as pydantic parses JSON, so text given for `bytes` must be base64.

        Raises:
            SchemaMismatchError: If it doesn't fit.
            ValueNotSerializableError: If it fits, and its JSON form would not give it back.
        """
        if self._takes_nothing:
            self._require_nothing(value, what)
            return cast(Json, value)
        if not _is_json(value):
            return self.dump(value, what=what)
        inexact = find_inexact_float(value, self._read(cast(Json, value), what))
        if inexact is not None:
            raise SchemaMismatchError(what, (Problem(path=inexact[0], message=inexact[1]),))
        return cast(Json, value)

    def json_schema(self) -> Json:
        """The type's structure in canonical form; what can't be expressed is marked, never an exception."""
        if not self._json_schema:
            self._json_schema.append(canonical_json_schema(self.codec.adapter))
        return self._json_schema[0]

    @property
    def codec(self) -> Codec:
        """Pydantic's side of the type.

        Raises:
            DefinitionError: If the type names a class that still doesn't exist.
        """
        if self._codec is None:
            self._codec = build_codec(self.annotation)
        if self._codec is None:
            problem = "it names a class that isn't defined; define it before the type is used"
            raise DefinitionError(f"the type {self.annotation!r}", (problem,))
        return self._codec

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self._takes_nothing == other._takes_nothing and self.annotation == other.annotation

    def __hash__(self) -> int:
        try:
            return hash((self._takes_nothing, self.annotation))
        except TypeError:  # an annotation may hold a dict or a list as metadata
            return hash((self._takes_nothing, type(self.annotation)))

    def __repr__(self) -> str:
        return "Schema.none()" if self._takes_nothing else f"Schema.of({self.annotation!r})"

    def _read(self, stored: Json, what: str) -> T_co:
        try:
            return self._parsed(pydantic_core.to_json(stored))
        except DefinitionError:
            raise
        except Exception as error:
            try:
                require_json(stored, what=what)
            except ValueNotSerializableError as odd:
                raise SchemaMismatchError(what, (Problem(path=odd.path, message=odd.problem),)) from error
            raise SchemaMismatchError(what, self._problems_of(error, stored)) from error

    def _parsed(self, text: bytes) -> T_co:
        return cast(T_co, self.codec.validator.validate_json(text))

    def _validated(self, value: object, what: str) -> object:
        codec = self.codec
        try:
            return codec.validator.validate_python(value)
        except Exception as error:
            # Types that are strict in Python may still be written as JSON: a date as text, a tuple as a list.
            if isinstance(value, dict | list) and _is_json(value):
                return self._read(cast(Json, value), what)
            refuse_unkeepable(value, what=what, with_integers=True)
            raise SchemaMismatchError(what, self._problems_of(error, value)) from error

    def _written(self, validated: object, what: str) -> bytes:
        try:
            return self.codec.serializer.to_json(validated, by_alias=True, round_trip=True, warnings=False)
        except Exception as error:
            refuse_unkeepable(validated, what=what, with_integers=True)
            raise ValueNotSerializableError(what, *why_unwritten(validated, error)) from error

    def _read_back(self, text: bytes, validated: object, what: str) -> tuple[Json, T_co]:
        try:
            return cast(Json, pydantic_core.from_json(text)), self._parsed(text)
        except Exception as error:
            refuse_unkeepable(validated, what=what, with_integers=True)
            problems = self._problems_of(error, _readable(text))
            raise ValueNotSerializableError(what, *why_unread(validated, problems)) from error

    def _problems_of(self, error: Exception, value: object) -> tuple[Problem, ...]:
        return problems_of(error, value, schema=self.codec.adapter.core_schema)

    def _require_nothing(self, value: object, what: str) -> None:
        if value is not None and value != {}:
            raise SchemaMismatchError(what, (Problem(path="$", message="nothing is taken here; give None"),))


def _refuse_difference(found: Difference | None, what: str) -> None:
    if found is not None:
        raise ValueNotSerializableError(what, *found)


def _is_suspect(text: bytes) -> bool:
    """Whether JSON text may hold what stores can't, which its members are then asked about one by one."""
    return _NUL in text or (
        len(text) > _LONGEST_INTEGER and b"0" * _LONGEST_INTEGER in text.translate(_DIGITS_AS_ZERO)
    )


def _readable(text: bytes) -> object:
    try:
        return pydantic_core.from_json(text)
    except ValueError:
        return None


def _is_json(value: object) -> bool:
    if is_exact_json(value):
        return True
    try:
        require_json(value, what="")
    except ValueNotSerializableError:
        return False
    return True


def _is_native(annotation: object) -> bool:
    """Whether values of the type are JSON already, so that exact JSON needs no second look."""
    if annotation in (None, NoneType, bool, int, float, str, Any, object):
        return True
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return all(type(argument) in (bool, int, str, NoneType) for argument in arguments)
    if origin in (Union, UnionType) or origin is list:
        return all(_is_native(argument) for argument in arguments)
    return origin is dict and arguments[0] is str and _is_native(arguments[1])
