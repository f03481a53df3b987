"""Results of steps: the same value of the same type on the first execution and on a replay, or a refusal."""

import functools
import io
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, NoReturn, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, field_serializer

from stagewright import StageContext, Status
from stagewright.commands import ExecuteJobResult
from stagewright.errors import DefinitionError, StepResultNotSerializableError
from stagewright.records import RunRecord

RunSteps = Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]
Ctx = StageContext[Any]


class Receipt(BaseModel):
    number: int
    total: Decimal
    paid_at: datetime
    tags: tuple[str, ...] = ()
    from_: str = Field(default="x", alias="from")


class Line(BaseModel):
    sku: str


class Priced(Line):
    price: Decimal


@dataclass(frozen=True)
class Point:
    x: int
    y: float


class Sealed(BaseModel):
    """Its own serialiser fails."""

    n: int

    @field_serializer("n")
    def shown(self, n: int) -> int:
        raise RuntimeError(f"{n} stays secret")


class Colour(Enum):
    RED = "red"


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]


MOMENT = datetime(2025, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
VALUES: list[tuple[object, object]] = [
    (Receipt, Receipt(number=1, total=Decimal("1.10"), paid_at=MOMENT, tags=("a", "b"), **{"from": "y"})),
    (Point, Point(1, 2.0)),
    (list[Point], [Point(1, 2.5)]),
    (datetime, MOMENT),
    (datetime, MOMENT.replace(tzinfo=None)),
    (Page[Point], Page[Point](items=[Point(1, 2.5)])),
    (int | str | Decimal, "5"),
    (list[int | None], [1, None]),
    (date, date(2025, 1, 1)),
    (timedelta, timedelta(days=1, microseconds=1)),
    (Decimal, Decimal("10.00")),
    (UUID, UUID(int=7)),
    (bytes, b"\xff\x00\xfe"),
    (Colour, Colour.RED),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (dict[int, str], {1: "a"}),
    (type(None), None),
    (int | None, None),
    (float, 1.0),
    (bool, True),
    (Any, {"a": [1, 1.0, None, "x", True]}),
]


@pytest.mark.guarantee("steps.results-keep-value-and-type")
@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda given: str(given)[:40])
async def test_a_result_is_the_same_first_and_later(
    run_steps: RunSteps, kind: object, value: object, annotated: bool
) -> None:
    seen: list[Any] = []

    async def fn() -> Any:
        return value

    if annotated:
        fn.__annotations__["return"] = kind

    async def body(ctx: Ctx) -> Any:
        seen.append(await ctx.step.run("a", fn, returns=None if annotated else kind))
        await ctx.step.sleep("pause", "1s")

    run, _ = await run_steps(body)
    assert run.status is Status.COMPLETED
    first, later = seen
    assert first == later == value
    assert type(first) is type(later) is type(value)
    assert first is not value or value is None or isinstance(value, bool | int | float | str | Enum)


@pytest.mark.parametrize(
    ("kind", "value", "path", "told"),
    [
        (None, (1, 2), "$", "tuple"),
        (None, {"a": [1, {2}]}, "$.a[1]", "set"),
        (None, MOMENT, "$", "datetime"),
        (None, float("nan"), "$", "nan"),
        (float, float("inf"), "$", "inf"),
        (None, {"n": "nul\x00"}, "$.n", "NUL"),
        (None, object(), "$", "object"),
        (int, "5", "$", "'5'"),
        (Line, Priced(sku="s", price=Decimal(1)), "$", "Priced"),
        (dict[str, int], {"a": "x"}, "$.a", "x"),
        (None, (number for number in [1]), "$", "generator"),
        (None, {"file": io.StringIO()}, "$.file", "no JSON form"),
        (None, [lambda: 1], "$[0]", "function"),
        (None, CIRCLE, "$[0]", "itself"),
        (Sealed, Sealed(n=7), "$", "7 stays secret"),
    ],
)
@pytest.mark.guarantee("steps.what-can-not-be-kept-fails-its-step")
async def test_a_result_that_can_not_be_kept_fails_its_step_for_good(
    run_steps: RunSteps, kind: object, value: object, path: str, told: str
) -> None:
    calls: list[int] = []
    caught: list[StepResultNotSerializableError] = []

    def fn() -> Any:
        calls.append(1)
        return value

    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.step.run("a", fn, returns=kind, retries=3)
        except StepResultNotSerializableError as error:
            caught.append(error)
        await ctx.step.sleep("pause", "1s")
        if ctx.attempt == 1:
            raise ValueError("another attempt")

    run, results = await run_steps(body)
    assert run.status is Status.COMPLETED
    assert calls == [1], "its function has taken effect and is not called again, whatever retries there are"
    assert [result.outcome for result in results] == ["suspended", "failed", "completed"]
    assert len(caught) == 3
    for error in caught:
        assert (error.step_id, error.path) == ("a", path)
        assert told in error.problem
    assert len({str(error) for error in caught}) == 1


async def test_a_refused_result_that_nobody_catches_fails_the_stage_at_once(run_steps: RunSteps) -> None:
    async def body(ctx: Ctx) -> Any:
        await ctx.step.run("a", lambda: {1})

    run, results = await run_steps(body)
    assert run.error is not None
    assert run.error.message.startswith("the result of step 'a' can't be stored: $: ")
    assert len(results) == 1


async def test_the_type_of_a_result_is_found_where_it_is_written(run_steps: RunSteps) -> None:
    class Local(BaseModel):
        n: int

    class Maker:
        def make(self) -> Local:
            return Local(n=1)

        async def __call__(self) -> Local:
            return Local(n=2)

    async def scaled(factor: int) -> Local:
        return Local(n=factor)

    async def body(ctx: Ctx) -> Any:
        kept: list[Local] = [
            await ctx.step.run("method", Maker().make),
            await ctx.step.run("object", Maker()),
            await ctx.step.run("partial", functools.partial(scaled, 3)),
            await ctx.step.run("lambda", lambda: scaled(4), returns=Local),
            await ctx.step.run("class", lambda: Local(n=5), returns=Local),
        ]
        assert all(type(one) is Local for one in kept)
        return [one.n for one in kept]

    run, _ = await run_steps(body)
    assert run.output == [1, 2, 3, 4, 5]


async def test_a_type_that_can_not_be_kept_is_refused_by_name(run_steps: RunSteps) -> None:
    class Opaque:
        pass

    async def body(ctx: StageContext[Any]) -> None:
        with pytest.raises(DefinitionError, match=r"its result has the type <class .*Opaque.*returns="):
            await ctx.step.run("a", lambda: 1, returns=Opaque)

    run, _ = await run_steps(body)
    assert run.status is Status.COMPLETED


async def test_a_type_that_can_not_be_found_is_refused_by_name(run_steps: RunSteps) -> None:
    def fn() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821 - it is what this test is about
        raise AssertionError("not called")

    async def body(ctx: Ctx) -> Any:
        with pytest.raises(DefinitionError, match=r"'Nowhere', can't be resolved.*returns="):
            await ctx.step.run("a", fn)

    run, _ = await run_steps(body)
    assert run.status is Status.COMPLETED


async def test_a_function_that_never_returns_may_say_so(run_steps: RunSteps) -> None:
    def fn() -> NoReturn:
        raise LookupError("always")

    async def body(ctx: Ctx) -> Any:
        with pytest.raises(LookupError):
            await ctx.step.run("a", fn)

    run, _ = await run_steps(body)
    assert run.status is Status.COMPLETED


async def test_a_result_is_not_the_functions_own_object(run_steps: RunSteps) -> None:
    own = {"list": [1]}

    async def body(ctx: Ctx) -> Any:
        kept = await ctx.step.run("a", lambda: own)
        own["list"].append(2)
        return kept

    run, _ = await run_steps(body)
    assert run.output == {"list": [1]}
