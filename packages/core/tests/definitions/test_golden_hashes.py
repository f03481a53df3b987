"""The structures of many types, pinned: the same on every supported Python and pydantic.

A changed hash here would give every workflow that uses such a type a new version, and leave its open runs to the
build before.
"""

import dataclasses
import enum
import hashlib
from collections import deque
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import pytest
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    Json,
    PositiveInt,
    RootModel,
    SecretStr,
)
from typing_extensions import TypedDict

from stagewright.definitions import Schema
from stagewright.definitions.json_schema import canonical_json

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Code(enum.Enum):
    """One member."""

    ONLY = 1


class Level(enum.StrEnum):
    LOW = "low"
    HIGH = "high"


class Leaf(BaseModel):
    """A leaf."""

    title: str
    description: int = Field(3, description="How many", examples=[1])
    when: datetime | None = None


class Tree(BaseModel):
    leaf: Leaf
    children: list["Tree"] = []
    by_name: dict[str, "Tree"] | None = None
    other: Leaf | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog", "hound"]
    leaf: Leaf


@dataclasses.dataclass
class Line:
    price: Decimal
    sizes: tuple[int, ...] = ()
    tags: set[str] = dataclasses.field(default_factory=set)


class Partial(TypedDict, total=False):
    a: int
    leaves: list[Leaf]


class Pair(NamedTuple):
    left: int
    right: str = "x"


class Envelope(BaseModel, Generic[T]):
    body: T
    more: list[T]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int = Field(1, alias="A", ge=0, le=10.0)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: Any = None
    b: object = 1


class Opaque:
    pass


class Arbitrary(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    opaque: Opaque
    plain: int


class Numbers(RootModel[list[int]]):
    pass


class KeywordNames(BaseModel):
    enum: Leaf
    required: list[Leaf]
    discriminator: Leaf
    title: str
    default: int = 1


GOLDEN: list[tuple[str, object, str]] = [
    ("model", Leaf, "2e6f9e0c736a4923"),
    ("recursive model", Tree, "a8ce8bb04ca2c4e0"),
    ("list of a recursive model", list[Tree], "77fff73e7b96f74f"),
    ("discriminated union", Annotated[Cat | Dog, Field(discriminator="kind")], "c265a4f038ce7ad2"),
    ("dataclass", Line, "34fcb5e2f603fc8b"),
    ("list of a dataclass", list[Line], "68fe5b5db288fd54"),
    ("typed dict", Partial, "2b4a34446eddb8a9"),
    ("named tuple", Pair, "209fe35e37e91976"),
    ("generic of a scalar", Envelope[int], "b64438f72381c9ab"),
    ("generic of a model", Envelope[Leaf], "2cd3974821ecefcc"),
    ("forbidding extras", Strict, "c8af52564de45991"),
    ("allowing extras", Open, "9f41fd34ce5cefca"),
    ("with an arbitrary type", Arbitrary, "e89e2da48d54688d"),
    ("root model", Numbers, "0128ef9bd2206166"),
    ("properties named like keywords", KeywordNames, "61a53b3b43f9ad97"),
    ("scalars", list[int | str | float | bool | None], "790bb71c4662ee05"),
    ("times and ids", tuple[date, time, timedelta, UUID, bytes, Path], "d834d647b0287d2d"),
    ("enum", Color, "0e8bcdd8308404a5"),
    ("enum of one", Code, "e87b1752580ef5bf"),
    ("text enum", Level, "908a4c257bed38dc"),
    ("bounded decimal", Annotated[Decimal, Field(ge=0, max_digits=5)], "18c1851e91087c57"),
    ("integer keys", dict[int, float], "96915ea19193d3fe"),
    ("enum keys", dict[Color, int], "7f11c5a1fba8e85b"),
    ("any dict", dict[str, Any], "a2c799262a3ce3c1"),
    ("bare list", list, "5483e69d7515873a"),
    ("literal", Literal["a", 1, None], "2ef18dea7d98d72d"),
    ("positive integer", PositiveInt, "99ec9034ff69cd5e"),
    ("pattern", Annotated[str, Field(pattern="^a+$", min_length=1)], "4be0068339f58dac"),
    ("url", HttpUrl, "e366d0365479e8ac"),
    ("secret", SecretStr, "749360c3e776f802"),
    ("aware datetime", AwareDatetime, "4f410cd74c87d8dd"),
    ("address", IPv4Address, "1d0f48caf5e06872"),
    ("deque", deque[int], "0128ef9bd2206166"),
    ("frozen set of models", frozenset[Leaf], "0ed30d7720c508d4"),
    ("json in text", Json[Leaf], "dcb59e9c70765638"),
    ("optional model", Leaf | None, "6dcec1da2b135834"),
    ("anything", Any, "44136fa355b3678a"),
    ("nothing", None, "bcde375ebd4cbacf"),
    ("huge bound", Annotated[int, Field(le=2**70)], "02c16e09b42279ed"),
    ("float bounds", Annotated[float, Field(multiple_of=0.1, lt=1e300)], "b7ba66f1f0a4bd46"),
    ("union of models and lists", Leaf | list[Leaf] | Cat, "05963f0261eea9c7"),
    ("short bytes", list[Annotated[bytes, Field(max_length=3)]], "fbac8da354328bed"),
]


@pytest.mark.guarantee("definitions.hash-pinned")
@pytest.mark.parametrize(
    ("annotation", "digest"), [case[1:] for case in GOLDEN], ids=[case[0] for case in GOLDEN]
)
def test_the_structure_of_a_type_is_pinned(annotation: object, digest: str) -> None:
    text = canonical_json(Schema.of(annotation).json_schema())
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest, text
