"""Which command bodies are the same."""

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright.commands import CreateRun
from stagewright.kernel.fingerprint import fingerprint_of


class Order(BaseModel):
    id: str
    amount: Decimal


@dataclass
class Point:
    x: int


class Color(Enum):
    RED = "red"


def of(value: Any, **fields: Any) -> str:
    return fingerprint_of(CreateRun("w", value, **fields))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Order(id="1", amount=Decimal("1.10")), {"id": "1", "amount": "1.10"}),
        (Point(1), {"x": 1}),
        ([Color.RED], ["red"]),
        (datetime(2031, 1, 1, tzinfo=UTC), "2031-01-01T00:00:00Z"),
        ({1, 2, 3}, {3, 2, 1}),
        ((1, 2), [1, 2]),
    ],
)
def test_equal_bodies_are_one(one: Any, other: Any) -> None:
    assert of(one) == of(other)


class Opaque:
    def __init__(self, value: int) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (1, 1.0),
        (True, 1),
        (None, "null"),
        (b"\xff\x01", b"\xfe\x02"),
        ({"a": 1}, {"a": 2}),
        ([1, 2], [2, 1]),
        ({1: "a"}, {"1": "a"}),
        pytest.param(10**5000, 10**5000 + 1, id="huge integers"),
        (Opaque(1), Opaque(2)),
        ("\ud800", "\\ud800x"),
    ],
)
def test_different_bodies_are_told_apart(one: Any, other: Any) -> None:
    assert of(one) != of(other)


def test_every_field_but_the_key_counts() -> None:
    assert of(1) == of(1, idempotency_key="k")
    assert len({of(1), of(1, priority=6), of(1, config={"a": {}}), fingerprint_of(CreateRun("v", 1))}) == 4


def test_a_value_inside_itself_has_a_fingerprint() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert of(endless)


def test_another_process_finds_the_same_fingerprint() -> None:
    code = (
        "from stagewright.commands import CreateRun\n"
        "from stagewright.kernel.fingerprint import fingerprint_of\n"
        "print(fingerprint_of(CreateRun('w', {'a', 'b', 'c', 'd'}, config={'x': frozenset('xyz')})))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
