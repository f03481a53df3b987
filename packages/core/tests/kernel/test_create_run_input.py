"""An input that has no exact JSON form is refused at the call, with the path of the first thing that hasn't."""

import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, RootModel

from stagewright import Kernel, StageContext, Workflow, define_workflow, stage
from stagewright.commands import CreateRun
from stagewright.errors import InvalidInputError

MakeKernel = Callable[..., Kernel]


class Opaque:
    pass


class Colour(Enum):
    RED = "red"


class Holder(BaseModel):
    name: str = "h"
    value: Any = None


def itself() -> list[object]:
    inner: list[object] = [1]
    inner.append(inner)
    return inner


def deep() -> object:
    value: object = 1
    for _ in range(5_000):
        value = [value]
    return value


def numbers() -> Iterator[int]:
    yield 1


VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "lambda": (lambda: lambda: 1, "$.a[1]"),
    "generator": (numbers, "$.a[1]"),
    "text stream": (lambda: io.StringIO("x"), "$.a[1]"),
    "self reference": (itself, "$.a[1][1]"),
    "not a number": (lambda: float("nan"), "$.a[1]"),
    "infinity": (lambda: float("-inf"), "$.a[1]"),
    "NUL": (lambda: "a\x00b", "$.a[1]"),
    "lone surrogate": (lambda: "\udc80", "$.a[1]"),
    "NUL in a key": (lambda: {"a\x00": 1}, "$.a[1]['a\\x00']"),
    "integer key": (lambda: {1: "one"}, "$.a[1][1]"),
    "boolean key": (lambda: {True: "one"}, "$.a[1][True]"),
    "tuple": (lambda: (1, 2), "$.a[1]"),
    "set": (lambda: {1}, "$.a[1]"),
    "bytes": (lambda: b"x", "$.a[1]"),
    "decimal": (lambda: Decimal("1.5"), "$.a[1]"),
    "enum": (lambda: Colour.RED, "$.a[1]"),
    "object": (Opaque, "$.a[1]"),
    "class": (lambda: Opaque, "$.a[1]"),
    "exception": (lambda: ValueError("x"), "$.a[1]"),
    "model in the wild": (Holder, "$.a[1]"),
    "huge integer": (lambda: 10**5_000, "$.a[1]"),
}


@pytest.fixture
def untyped(flow_of: Callable[..., Workflow]) -> Workflow:
    async def echo(ctx: StageContext[Any]) -> Any:
        return ctx.input

    return flow_of(echo)


@stage("hold")
async def hold(ctx: StageContext[Holder]) -> str:
    return ctx.input.name


@pytest.mark.guarantee("kernel.unstorable-input-is-refused-at-the-call")
@pytest.mark.parametrize("name", VALUES)
async def test_what_is_no_json_is_refused_at_its_path(
    make_kernel: MakeKernel, untyped: Workflow, contents: Callable[[], dict[str, object]], name: str
) -> None:
    make, path = VALUES[name]
    before = contents()
    with pytest.raises(InvalidInputError) as caught:
        await make_kernel(untyped).dispatch(CreateRun("flow", {"a": ["fine", make()]}))
    assert [problem.path for problem in caught.value.problems] == [path]
    assert contents() == before


async def test_an_open_file_is_refused_and_left_open(
    make_kernel: MakeKernel, untyped: Workflow, tmp_path: Path
) -> None:
    with (tmp_path / "f").open("w") as file, pytest.raises(InvalidInputError) as caught:
        await make_kernel(untyped).dispatch(CreateRun("flow", {"file": file}))
    assert [problem.path for problem in caught.value.problems] == ["$.file"]


@pytest.mark.parametrize("name", VALUES)
async def test_a_keyed_command_is_refused_just_the_same(
    make_kernel: MakeKernel, untyped: Workflow, contents: Callable[[], dict[str, object]], name: str
) -> None:
    make, path = VALUES[name]
    before = contents()
    with pytest.raises(InvalidInputError) as caught:
        await make_kernel(untyped).dispatch(CreateRun("flow", {"a": ["fine", make()]}, idempotency_key="k"))
    assert [problem.path for problem in caught.value.problems] == [path]
    assert contents() == before


@pytest.mark.parametrize("key", [None, "k"])
async def test_nesting_without_end_is_refused_and_kills_nothing(
    make_kernel: MakeKernel, untyped: Workflow, key: str | None
) -> None:
    with pytest.raises(InvalidInputError):
        await make_kernel(untyped).dispatch(CreateRun("flow", deep(), idempotency_key=key))


@pytest.mark.parametrize("name", ["lambda", "NUL", "integer key", "self reference", "tuple", "not a number"])
async def test_inside_a_model_the_path_leads_there_as_well(make_kernel: MakeKernel, name: str) -> None:
    workflow = define_workflow("held", input=Holder).pipe(hold).build()
    make, path = VALUES[name]
    with pytest.raises(InvalidInputError) as caught:
        await make_kernel(workflow).dispatch(CreateRun("held", Holder(value={"a": ["fine", make()]})))
    assert [problem.path for problem in caught.value.problems] == [path.replace("$", "$.value", 1)]


@pytest.mark.parametrize(
    "given",
    [
        None,
        True,
        0,
        -0.0,
        10**4_000,
        "",
        "\U0001f600 ü",
        [],
        {},
        {"": [{"a": None}]},
        [[[[]]]],
        {"$wfSpill": 1, "key": "k"},
    ],
)
async def test_exact_json_comes_back_as_it_went_in(
    make_kernel: MakeKernel, untyped: Workflow, given: object
) -> None:
    kernel = make_kernel(untyped)
    run = await kernel.runs.get((await kernel.dispatch(CreateRun("flow", given))).run_id)
    assert run is not None
    assert run.input == given
    assert type(run.input) is type(given)


class Weighed(BaseModel):
    weight: float = Field(alias="kg")
    parts: "list[Weighed]" = []


class Root(RootModel[list[float]]):
    pass


UNHELD = 2**53 + 1


@pytest.mark.guarantee("values.inputs-are-what-was-given")
@pytest.mark.parametrize(
    ("declared", "given", "path"),
    [
        (float, 10**400, "$"),
        (float, -(10**400), "$"),
        (float, UNHELD, "$"),
        (float | None, UNHELD, "$"),
        (list[float], [1, UNHELD], "$[1]"),
        (tuple[float, int], [UNHELD, UNHELD], "$[0]"),
        (set[float], [1, UNHELD], "$"),
        (set[float], [2**53, UNHELD], "$"),
        (dict[str, float], {"a": UNHELD}, "$.a"),
        (dict[int, float], {"1": UNHELD}, "$['1']"),
        (Weighed, {"kg": 1, "parts": [{"kg": UNHELD}]}, "$.parts[0].kg"),
        (Root, [UNHELD], "$[0]"),
    ],
)
async def test_a_whole_number_that_no_float_is_is_refused_where_a_float_is_declared(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow], declared: object, given: object, path: str
) -> None:
    async def body(ctx: StageContext[Any]) -> None:
        return None

    kernel = make_kernel(flow_of(body, input=declared))
    with pytest.raises(InvalidInputError, match="is no exact float") as caught:
        await kernel.dispatch(CreateRun("flow", given))
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        (float, 2**53),
        (float, 10**22),
        (int, UNHELD),
        (Any, 10**400),
        (int | float, UNHELD),
        (set[float], [1, 2]),
        (set[int], [UNHELD]),
        (dict[str, Any], {"a": [UNHELD]}),
        (Weighed, {"kg": 2**60}),
        (Decimal, UNHELD),
    ],
)
async def test_whole_numbers_that_are_held_are_accepted(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow], declared: object, given: object
) -> None:
    async def body(ctx: StageContext[Any]) -> None:
        return None

    kernel = make_kernel(flow_of(body, input=declared))
    run_id = (await kernel.dispatch(CreateRun("flow", given))).run_id
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.input, type(run.input)) == (given, type(given))
