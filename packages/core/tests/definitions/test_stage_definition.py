from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast

import pytest
from pydantic import BaseModel

from stagewright.definitions import (
    BlockingStageContext,
    EmptyConfig,
    NotReady,
    Ready,
    RetryPolicy,
    Schema,
    Stage,
    StageContext,
    StageResult,
    Suspend,
    define_stage,
    stage,
)
from stagewright.errors import DefinitionError

if TYPE_CHECKING:
    from elsewhere import Unknown  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]  # on purpose

T = TypeVar("T")


class Order(BaseModel):
    amounts: list[float]


class PriceConfig(BaseModel):
    currency: str = "EUR"


class Priced(BaseModel):
    total: float


class FakeContext:
    def __init__(self, given: object) -> None:
        self.input = given


Ctx: TypeAlias = StageContext[Order, PriceConfig]


@stage("price", retry=RetryPolicy(max_attempts=5), timeout="30s")
async def price(ctx: StageContext[Order, PriceConfig]) -> Priced:
    """Add up the amounts.

    The currency is taken from the config.
    """
    return Priced(total=sum(ctx.input.amounts))


def refused(make: Callable[[], object]) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        make()
    return caught.value


def test_types_come_from_the_annotations() -> None:
    assert price.input_schema == Schema.of(Order)
    assert price.config_schema == Schema.of(PriceConfig)
    assert price.output_schema == Schema.of(Priced)
    assert (price.id, price.name, price.mode) == ("price", "price", "sync")
    assert price.description == "Add up the amounts."
    assert price.timeout == timedelta(seconds=30)
    assert price.takes_input
    assert not price.is_blocking


async def test_a_stage_is_still_the_plain_function() -> None:
    ctx = cast("StageContext[Order, PriceConfig]", FakeContext(Order(amounts=[1, 2])))
    assert await price(ctx) == Priced(total=3)
    assert price.__name__ == "price"


def test_a_plain_function_is_a_blocking_stage() -> None:
    @stage("count", name="Count them", description="How many")
    def count(ctx: BlockingStageContext[Order]) -> int:
        return len(ctx.input.amounts)

    assert count.is_blocking
    assert count.config_schema == Schema.of(EmptyConfig)
    assert count(cast("BlockingStageContext[Order]", FakeContext(Order(amounts=[1, 2])))) == 2
    assert (count.name, count.description) == ("Count them", "How many")


def test_none_as_the_input_means_it_takes_none() -> None:
    @stage("begin")
    async def begin(ctx: StageContext[None]) -> None: ...

    assert not begin.takes_input
    assert begin.parse_input({"ignored": True}) is None
    assert begin.output_schema == Schema.of(None)


def test_any_pydantic_type_is_a_schema() -> None:
    @stage("shape")
    async def shape(ctx: StageContext[dict[str, list[int]] | None, EmptyConfig]) -> tuple[int, ...]:
        return ()

    assert shape.input_schema == Schema.of(dict[str, list[int]] | None)
    assert shape.output_schema == Schema.of(tuple[int, ...])


def test_classes_of_the_defining_function_are_found() -> None:
    class Local(BaseModel):
        x: int

    def inner() -> Stage[Any, Any, Any]:
        @stage("inner")
        async def work(ctx: StageContext[Local]) -> list[Local]:
            return [Local(x=1)]

        return work

    @stage("outer")
    async def work(ctx: StageContext[Local]) -> Local:
        return ctx.input

    assert work.input_schema == Schema.of(Local)
    assert inner().output_schema == Schema.of(list[Local])


def test_aliases_partials_methods_and_objects_work() -> None:
    @stage("aliased")
    async def aliased(ctx: Ctx) -> Annotated[int, "a note"]:
        return 1

    async def scaled(factor: int, ctx: StageContext[int]) -> int:
        return ctx.input * factor

    class Body:
        async def __call__(self, ctx: StageContext[int]) -> str:
            return ""

        async def method(self, ctx: StageContext[int]) -> str:
            return ""

        def plain(self, ctx: BlockingStageContext[int]) -> str:
            return ""

    assert aliased.input_schema == Schema.of(Order)
    assert define_stage("scaled", functools.partial(scaled, 2)).input_schema == Schema.of(int)
    assert define_stage("object", Body()).output_schema == Schema.of(str)
    assert not define_stage("object", Body()).is_blocking
    assert not define_stage("method", Body().method).is_blocking
    assert define_stage("plain", Body().plain).is_blocking


def test_a_wrapped_function_keeps_its_annotations() -> None:
    def traced(
        function: Callable[[StageContext[Order]], Awaitable[int]],
    ) -> Callable[[StageContext[Order]], Awaitable[int]]:
        @functools.wraps(function)
        async def wrapper(ctx: StageContext[Order]) -> int:
            return await function(ctx)

        return wrapper

    @stage("traced")
    @traced
    async def work(ctx: StageContext[Order]) -> int:
        return 1

    assert work.input_schema == Schema.of(Order)


def test_a_plain_wrapper_of_a_coroutine_function_is_asynchronous() -> None:
    def logged(
        function: Callable[[StageContext[int]], Awaitable[int]],
    ) -> Callable[[StageContext[int]], Awaitable[int]]:
        @functools.wraps(function)
        def wrapper(ctx: StageContext[int]) -> Awaitable[int]:
            return function(ctx)

        return wrapper

    @stage("logged")
    @logged
    async def work(ctx: StageContext[int]) -> int:
        return 1

    assert not work.is_blocking
    assert work.output_schema == Schema.of(int)


def test_results_and_unions_name_the_output() -> None:
    @stage("result")
    async def result(ctx: StageContext[None]) -> StageResult[Priced]:
        return StageResult(output=Priced(total=1), metrics={"rows": 1})

    @stage("either")
    async def either(ctx: StageContext[None]) -> int | StageResult[int] | None:
        return None

    assert result.output_schema == Schema.of(Priced)
    assert either.output_schema == Schema.of(int | None)


async def is_done(state: dict[str, str], ctx: StageContext[Order]) -> Ready[Priced] | NotReady:
    return NotReady("5s")


def test_an_async_batch_stage_suspends_and_is_asked() -> None:
    @stage("batch", mode="async-batch", check_completion=is_done)
    async def batch(ctx: StageContext[Order]) -> Priced | Suspend:
        return Suspend(state={"id": "b-1"})

    @stage("only-suspends", mode="async-batch", check_completion=is_done)
    async def only_suspends(ctx: StageContext[Order]) -> Suspend:
        return Suspend(state={"id": "b-1"})

    assert batch.mode == "async-batch"
    assert batch.check_completion is is_done
    assert batch.output_schema == only_suspends.output_schema == Schema.of(Priced)
    assert batch.state_schema == Schema.of(dict[str, str])
    assert not batch.check_is_blocking


def test_define_stage_says_it_without_annotations() -> None:
    made = define_stage("double", lambda ctx: ctx.input * 2, input=int, output=int, config=PriceConfig)
    assert (made.input_schema, made.output_schema) == (Schema.of(int), Schema.of(int))
    assert made.config_schema == Schema.of(PriceConfig)
    assert made.is_blocking
    nothing = define_stage("nothing", lambda ctx: None, input=None, output=None)
    assert not nothing.takes_input
    generic: Stage[Any, Any, Any] = define_stage(
        "generic", lambda ctx: {}, input=dict[str, int], output=dict[str, int] | None
    )
    assert generic.output_schema == Schema.of(dict[str, int] | None)


def test_what_define_stage_is_told_wins_over_annotations() -> None:
    async def body(ctx: StageContext[Any, PriceConfig]) -> Any:
        return ctx.input

    made = define_stage("body", body, input=Order, output=Priced)
    assert (made.input_schema, made.output_schema) == (Schema.of(Order), Schema.of(Priced))
    assert made.config_schema == Schema.of(PriceConfig)


def test_a_stage_is_frozen_and_its_own_value() -> None:
    with pytest.raises(FrozenInstanceError):
        price.id = "other"  # type: ignore[misc]  # wrong on purpose
    assert price == price
    assert len({price, price}) == 1


def test_dependencies_are_stages_or_ids() -> None:
    @stage("later", dependencies=(price, "load", "price"))
    async def later(ctx: StageContext[None]) -> None: ...

    assert later.dependencies == ("price", "load")


@pytest.mark.guarantee("definitions.wrong-annotations-explained")
def test_an_error_names_the_function_the_file_the_line_and_the_fix() -> None:
    async def forgetful(ctx: StageContext[Order]):  # type: ignore[no-untyped-def]  # wrong on purpose
        return 1

    line = forgetful.__code__.co_firstlineno
    error = refused(lambda: stage("forgetful")(forgetful))
    assert "forgetful" in error.subject
    assert f"test_stage_definition.py:{line}" in error.subject
    assert "-> Output" in str(error)
    assert "define_stage(..., output=...)" in str(error)


async def no_context(ctx) -> int:  # type: ignore[no-untyped-def]  # wrong on purpose
    return 1


async def plain_context(ctx: Order) -> int:
    return 1


async def blocking_context(ctx: BlockingStageContext[Order]) -> int:
    return 1


def async_context(ctx: StageContext[Order]) -> int:
    return 1


async def bare_context(ctx: StageContext) -> int:  # type: ignore[type-arg]  # wrong on purpose
    return 1


async def generic_context(ctx: StageContext[T]) -> int:
    return 1


async def generic_output(ctx: StageContext[None]) -> T:  # pyright: ignore[reportInvalidTypeVarUse]  # wrong on purpose
    raise NotImplementedError


async def unknown_input(ctx: StageContext[Unknown]) -> int:
    return 1


async def unknown_output(ctx: StageContext[None]) -> Unknown:
    return 1


async def suspends(ctx: StageContext[None]) -> int | Suspend:
    return 1


async def bare_result(ctx: StageContext[None]) -> StageResult:  # type: ignore[type-arg]  # wrong on purpose
    return StageResult(output=1)


async def too_many(ctx: StageContext[None], more: int) -> int:
    return 1


async def too_few() -> int:
    return 1


async def yields(ctx: StageContext[None]) -> AsyncIterator[int]:
    yield 1


class Opaque:
    pass


async def opaque(ctx: StageContext[Opaque]) -> Opaque:
    return Opaque()


async def scalar_config(ctx: StageContext[None, int]) -> int:
    return 1


@pytest.mark.guarantee("definitions.wrong-annotations-explained")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_context, ["no annotation", "ctx: StageContext[Input, Config]", "define_stage"]),
        (plain_context, ["Order", "no context"]),
        (blocking_context, ["async def body takes a StageContext"]),
        (async_context, ["plain def body takes a BlockingStageContext"]),
        (bare_context, ["names no input type", "StageContext[Input]"]),
        (generic_context, ["type variable ~T"]),
        (generic_output, ["type variable ~T"]),
        (unknown_input, ["'ctx'", "Unknown", "import what it names at run time", "define_stage"]),
        (unknown_output, ["the return annotation", "Unknown", "output="]),
        (suspends, ["async-batch"]),
        (bare_result, ["StageResult[Output]"]),
        (too_many, ["it must take (ctx)", "(ctx, more)"]),
        (too_few, ["it must take (ctx)"]),
        (yields, ["can't yield"]),
        (opaque, ["the input type", "the output type", "Opaque"]),
        (scalar_config, ["config type", "JSON object"]),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_an_unusable_annotation_is_explained(function: Any, words: list[str]) -> None:
    error = refused(lambda: stage("work")(function))
    assert f"{function.__name__} (test_stage_definition.py:" in error.subject
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize("id", ["", "Price", "-a", "_a", "a b", "a.b", "ä", "a" * 101, "a\n", 7, None])
def test_an_invalid_id_is_refused(id: Any) -> None:
    assert "stage id" in str(refused(lambda: define_stage(id, lambda ctx: None, input=None, output=None)))


@pytest.mark.parametrize("id", ["a", "0", "a-b_c", "a" * 100])
def test_a_valid_id_is_kept(id: str) -> None:
    assert define_stage(id, lambda ctx: None, input=None, output=None).id == id


def test_every_wrong_option_is_listed_at_once() -> None:
    options: dict[str, Any] = {
        "retry": 3,
        "timeout": -1,
        "mode": "later",
        "dependencies": "load",
        "check_completion": 5,
    }
    error = refused(lambda: define_stage("BAD", cast("Any", too_few), **options))
    assert len(error.problems) >= 6
    for word in ("stage id", "retry=3", "timeout=-1", "mode='later'", "dependencies", "check_completion"):
        assert word in str(error)


def test_a_check_and_its_mode_belong_together() -> None:
    async def body(ctx: StageContext[None]) -> int:
        return 1

    make = cast("Any", define_stage)
    assert "needs check_completion" in str(refused(lambda: make("a", body, mode="async-batch")))
    assert "async-batch" in str(refused(lambda: make("a", body, check_completion=is_done)))


def test_a_check_takes_state_and_context() -> None:
    async def body(ctx: StageContext[None]) -> int | Suspend:
        return 1

    async def wrong(state: str) -> NotReady:
        return NotReady()

    async def mixed(state: str, ctx: BlockingStageContext[None]) -> NotReady:
        return NotReady()

    make = cast("Any", define_stage)
    assert "(state, ctx)" in str(refused(lambda: make("a", body, mode="async-batch", check_completion=wrong)))
    assert "mixed" in str(refused(lambda: make("a", body, mode="async-batch", check_completion=mixed)))


def test_no_timeout_of_nothing() -> None:
    assert "timeout" in str(
        refused(lambda: define_stage("a", lambda ctx: 1, input=None, output=int, timeout=0))
    )


def test_a_body_must_be_callable() -> None:
    assert "function" in str(refused(lambda: define_stage("a", cast("Any", 5), input=int, output=int)))
