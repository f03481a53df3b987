"""A derived version changes exactly when the structure does."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from stagewright import definitions
from stagewright.definitions import (
    Schema,
    Stage,
    StageContext,
    Workflow,
    define_stage,
    define_workflow,
    stage,
    structure_hash,
)

SOURCE = '''
"""Orders."""
from typing import Any, Union
from pydantic import BaseModel, Field
from stagewright.definitions import StageContext, define_stage, define_workflow, stage

class Order(BaseModel):
    """An order."""
    title: str = Field(description="its title", examples=["a"])
    amounts: list[float] = []
    tags: set[str] = {"a", "b", "c"}
    which: Union[int, str, None] = None

class Config(BaseModel):
    currency: str = "EUR"

def make(factor):
    def helper(value):
        return value * factor
    @stage("price", description="Prices it")
    async def price(ctx: StageContext[Order, Config]) -> dict[str, float]:
        """Price it."""
        rate = (lambda amount: amount)
        return {"total": helper(sum(map(rate, ctx.input.amounts)))}
    return price

ship = define_stage("ship", lambda ctx: "log text", input=dict[str, float], output=str, dependencies=["price"])
workflow = define_workflow("orders", input=Order).pipe(make(2)).pipe(ship).build()
'''

OTHER = """
from stagewright.definitions import define_stage, define_workflow
only = define_stage("only", lambda ctx: {1: {"a"}}, input=None, output=dict[int, set[str]])
unrelated = define_workflow("unrelated", input=None).pipe(only).build()
"""

REFORMATTED = SOURCE.replace('"""Price it."""', '"""Prices what was ordered."""  # a comment\n').replace(
    '"log text"', '"another log text"'
)
REFORMATTED = REFORMATTED.replace("title: str = Field(", "title: str = Field(\n        ").replace(
    "An order.", "Changed."
)
REFORMATTED = REFORMATTED.replace('"Prices it"', '"Says more"').replace(
    'currency: str = "EUR"', 'currency: str = "USD"'
)

PRINT = "print(workflow.definition_version, unrelated.definition_version)"


def versions(program: str, *, path: Sequence[Path] = (), seed: int = 0) -> tuple[str, str]:
    places = [*map(str, path), str(Path(definitions.__file__).parents[2])]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split()
    return first, second


def write_modules(folder: Path, orders: str) -> None:
    folder.mkdir(parents=True)
    (folder / "orders.py").write_text(orders)
    (folder / "other.py").write_text(OTHER)


@pytest.mark.guarantee("definitions.hash-follows-structure")
@pytest.mark.parametrize("processes", [12, pytest.param(50, marks=pytest.mark.wide)])
def test_processes_agree_whatever_does_not_matter(tmp_path: Path, processes: int) -> None:
    write_modules(tmp_path / "source", SOURCE)
    write_modules(tmp_path / "moved" / "deeper", REFORMATTED)
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in (tmp_path / "source").iterdir():
            archive.write(file, file.name)
    first = f"from orders import workflow\nfrom other import unrelated\n{PRINT}"
    other_order = "import typing; x = typing.List[typing.Union[None, str, int]]"
    last = f"{other_order}\nfrom other import unrelated\nfrom orders import workflow\n{PRINT}"
    runs = [
        (program, place, seed)
        for seed, (program, place) in enumerate(
            [
                (program, place)
                for program in (first, last)
                for place in (tmp_path / "source", tmp_path / "moved" / "deeper", packed)
            ]
            * 9
        )
    ][:processes]
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = set(pool.map(lambda run: versions(run[0], path=[run[1]], seed=run[2]), runs))
    assert len(runs) == processes
    assert len(found) == 1


class Order(BaseModel):
    amounts: list[float] = []


class Config(BaseModel):
    currency: str = "EUR"


class OtherConfig(BaseModel):
    currency: str = "USD"


@stage("load")
async def load(ctx: StageContext[Order]) -> Order:
    return ctx.input


@stage("price")
async def price(ctx: StageContext[Order, Config]) -> Order:
    return ctx.input


def built(*groups: Sequence[Stage[Any, Any, Any]], id: str = "orders", input: object = Order) -> Workflow:
    builder = define_workflow(id, input=input)
    for group in groups:
        builder = builder.parallel(*group)
    return builder.build()


def made(
    id: str = "price", *, input: object = Order, output: object = Order, **options: Any
) -> Stage[Any, Any, Any]:
    given: Any = {"input": input, "output": output, "config": Config, **options}
    made: Stage[Any, Any, Any] = define_stage(id, lambda ctx: ctx.input, **given)
    return made


BASE = built([load], [price])


@pytest.mark.guarantee("definitions.hash-follows-structure")
@pytest.mark.parametrize(
    "same",
    [
        built([load], [price]),
        built([load], [made()]),
        built([load], [made(name="Price", description="Other words")]),
        built([load], [made(config=OtherConfig)]),
        built([load], [made(timeout="5s")]),
        define_workflow("orders", input=Order, name="Orders", description="All")
        .pipe(load)
        .pipe(price)
        .build(),
    ],
    ids=["built again", "another body", "words", "config defaults", "timeout", "workflow words"],
)
def test_what_is_not_structure_does_not_count(same: Workflow) -> None:
    assert same.definition_version == BASE.definition_version


class Needed(BaseModel):
    amounts: list[float]


class Whole(BaseModel):
    amounts: list[int] = []


async def check(state: object, ctx: StageContext[Order, Config]) -> Any: ...


CHANGED: dict[str, Workflow] = {
    "added": built([load], [price], [made("ship")]),
    "removed": built([price]),
    "reordered": built([price], [load]),
    "renamed": built([load], [made("pricing")]),
    "regrouped": built([load, price]),
    "dependency": built([load], [made(dependencies=["load"])]),
    "mode": built([load], [made(mode="async-batch", check_completion=check)]),
    "input of a stage": built([load], [made(input=Whole)]),
    "output of a stage": built([load], [made(output=Whole)]),
    "no input": built([load], [made(input=None)]),
    "config of a stage": built([load], [made(config=Needed)]),
    "input of the workflow": built([load], [price], input=Needed),
    "workflow id": built([load], [price], id="orders-2"),
}


@pytest.mark.guarantee("definitions.hash-follows-structure")
@pytest.mark.parametrize("name", CHANGED)
def test_every_structural_change_gives_another_version(name: str) -> None:
    assert CHANGED[name].definition_version != BASE.definition_version


def test_structural_changes_differ_from_each_other() -> None:
    assert len({workflow.definition_version for workflow in CHANGED.values()}) == len(CHANGED)


def test_a_version_is_sha256_and_thirty_two_digits() -> None:
    prefix, digits = BASE.definition_version.split("-")
    assert prefix == "sha256"
    assert len(digits) == 32
    assert int(digits, 16) >= 0


@pytest.mark.guarantee("definitions.hash-pinned")
def test_the_version_of_a_workflow_is_pinned() -> None:
    assert BASE.definition_version == "sha256-d5e731637f89aeca0469db37d6a95501"


def test_the_snapshot_is_a_document_of_this_form() -> None:
    amounts = {"items": {"type": "number"}, "type": "array"}
    order = {"properties": {"amounts": amounts}, "type": "object"}
    config = {"properties": {"currency": {"type": "string"}}, "type": "object"}
    empty = {"additionalProperties": False, "properties": {}, "type": "object"}
    workflow = built([load], [made(dependencies=["load"], input=None)])
    assert workflow.snapshot() == {
        "format": 1,
        "workflowId": "orders",
        "inputSchema": order,
        "outputSchema": order,
        "stages": [
            {
                "id": "load",
                "stageNumber": 1,
                "executionGroup": 1,
                "inputSchema": order,
                "outputSchema": order,
                "configSchema": empty,
            },
            {
                "id": "price",
                "stageNumber": 2,
                "executionGroup": 2,
                "dependencies": ["load"],
                "inputSchema": None,
                "outputSchema": order,
                "configSchema": config,
            },
        ],
    }


def as_another_store_would(digits: str) -> float:
    return int(float(digits)) if float(digits).is_integer() else float(digits)


@pytest.mark.guarantee("definitions.hash-survives-storage")
def test_a_snapshot_that_was_stored_has_the_same_hash() -> None:
    class Odd(BaseModel):
        exact: float = Field(1, le=10.0, multiple_of=0.1)
        big: int = Field(0, lt=2**70)
        name: Literal["grün", "🙂", "\x00", 'q"'] = "🙂"
        note: str = Field("", pattern="^\x00?$")

    workflow = built([made(input=Odd, output=Odd)], input=Odd)
    text = json.dumps(workflow.snapshot(), ensure_ascii=False)
    assert "\x00" not in text
    text.encode()
    shuffled = dict(reversed(json.loads(text).items()))
    assert structure_hash(shuffled) == workflow.definition_version
    # A store may give a whole float back as an integer.
    through_another_store = json.loads(text, parse_float=as_another_store_would)
    assert structure_hash(through_another_store) == workflow.structure_hash


def test_a_declared_version_stands_beside_the_structure() -> None:
    declared = define_workflow("orders", input=Order).pipe(load).pipe(price).version("2026-09-04.1").build()
    assert declared.definition_version == "2026-09-04.1"
    assert declared.structure_hash == BASE.structure_hash
    assert structure_hash(declared.snapshot()) == BASE.definition_version


def test_the_order_of_a_union_and_of_fields_does_not_count() -> None:
    class First(BaseModel):
        a: int | str
        b: Literal["x", "y"]

    class Second(BaseModel):
        b: Literal["y", "x"]
        a: str | int

    assert Schema.of(First).json_schema() == Schema.of(Second).json_schema()


def test_the_names_of_nested_classes_do_not_count() -> None:
    class Inner(BaseModel):
        x: int

    class Renamed(BaseModel):
        x: int

    class Before(BaseModel):
        one: Inner
        many: list[Inner | None]

    class After(BaseModel):
        one: Renamed
        many: list[Renamed | None]

    assert Schema.of(Before).json_schema() == Schema.of(After).json_schema()


def test_a_schema_that_json_cannot_express_is_marked() -> None:
    class Custom:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
            from pydantic_core import core_schema

            return core_schema.no_info_plain_validator_function(lambda value: value)

    class Holder(BaseModel):
        custom: Custom
        plain: int

    marked = {"unrepresentable": "function-plain"}
    assert Schema.of(Custom).json_schema() == marked
    assert Schema.of(Holder).json_schema() == {
        "properties": {"custom": marked, "plain": {"type": "integer"}},
        "required": ["custom", "plain"],
        "type": "object",
    }


def test_a_snapshot_is_the_callers_own() -> None:
    snapshot = BASE.snapshot()
    snapshot["stages"] = []
    assert BASE.snapshot()["stages"]
