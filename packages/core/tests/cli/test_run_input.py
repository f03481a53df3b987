from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from stagewright.cli.run_input import InputError, read_config, read_input
from stagewright.definitions import StageContext, Workflow, define_workflow, stage
from stagewright.json_values import Json


class Colour(Enum):
    RED = "red"
    ONE = 1


class Inner(BaseModel):
    x: int


class Everything(BaseModel):
    text: str = ""
    path: Path = Path()
    whole: int = 0
    real: float = 0.0
    flag: bool = False
    maybe: str | None = None
    either: int | str = 0
    inner: Inner | None = None
    colour: Colour = Colour.RED
    mode: Literal["a", 2] = "a"
    anything: Any = None
    items: list[int] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    text: str = ""


def workflow_of(type_: object) -> Workflow:
    @stage("one")
    async def one(ctx: StageContext[None, Inner]) -> int:
        return 1

    return define_workflow("w", input=type_).pipe(one).build()


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("text=3", "3"),
        ("text=true", "true"),
        ('text="quoted"', '"quoted"'),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("path=/tmp/x", "/tmp/x"),
        ("whole=3", 3),
        ("whole=x", "x"),
        ("real=3", 3),
        ("real=3.5", 3.5),
        ("flag=true", True),
        ("flag=yes", "yes"),
        ("maybe=null", None),
        ("maybe=3", "3"),
        ("either=3", 3),
        ("either=x", "x"),
        ('inner={"x": 1}', {"x": 1}),
        ("inner=null", None),
        ("colour=red", "red"),
        ("colour=1", 1),
        ("mode=2", 2),
        ("mode=a", "a"),
        ("anything=[1]", [1]),
        ("anything=word", "word"),
        ("items=[1, 2]", [1, 2]),
    ],
)
def test_a_value_is_json_where_the_schema_wants_it(pair: str, value: Json) -> None:
    assert read_input(workflow_of(Everything), None, [pair]) == {pair.partition("=")[0]: value}


def test_members_go_over_those_of_the_document() -> None:
    read = read_input(workflow_of(Everything), '{"text": "a", "whole": 1}', ["text=b"])
    assert read == {"text": "b", "whole": 1}


def test_a_document_may_be_anything() -> None:
    assert read_input(workflow_of(list[int]), "[1, 2]", []) == [1, 2]
    assert read_input(workflow_of(int), "5", []) == 5


@pytest.mark.parametrize("type_", [dict[str, int], Open, Any])
def test_an_open_object_takes_any_member(type_: object) -> None:
    assert read_input(workflow_of(type_), None, ["new=3"]) == {"new": 3}


@pytest.mark.parametrize(
    ("type_", "pairs"),
    [(Everything, ["txet=x"]), (None, ["a=1"]), (Everything, ["=1"]), (Everything, ["text"])],
)
def test_a_member_that_is_not_there_is_refused(type_: object, pairs: list[str]) -> None:
    with pytest.raises(InputError):
        read_input(workflow_of(type_), None, pairs)


@pytest.mark.parametrize(("type_", "value"), [(None, None), (int, None), (Everything, {})])
def test_no_input_is_the_emptiest_that_may_fit(type_: object, value: Json) -> None:
    assert read_input(workflow_of(type_), None, []) == value


def test_config_is_by_stage() -> None:
    assert read_config(workflow_of(int), ["one.x=3"]) == {"one": {"x": 3}}
    for pair in ("one=3", "one.=3", "two.x=3", "one.y=3"):
        with pytest.raises(InputError):
            read_config(workflow_of(int), [pair])
