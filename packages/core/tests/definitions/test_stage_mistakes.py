from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from pydantic import BaseModel

from stagewright.definitions import Schema, Stage, StageContext, define_stage, define_workflow, stage
from stagewright.errors import DefinitionError

make: Any = define_stage
bare: Any = stage


def refused(act: Callable[[], object]) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        act()
    return caught.value


def count(ctx: StageContext[None]) -> int:
    return 1


@pytest.mark.guarantee("definitions.wrong-annotations-explained")
def test_a_bare_decorator_is_refused_where_it_stands() -> None:
    async def price(ctx: StageContext[None]) -> int:
        return 1

    line = price.__code__.co_firstlineno
    error = refused(lambda: bare(price))
    assert f"price (test_stage_mistakes.py:{line})" in error.subject
    assert error.problems == ('@stage stands above it without an id; write @stage("price")',)

    def Price(ctx: StageContext[None]) -> int:  # noqa: N802 - no stage id
        return 1

    assert '@stage("my-stage")' in str(refused(lambda: bare(Price)))


@pytest.mark.guarantee("definitions.wrong-annotations-explained")
def test_an_async_generator_is_called_what_it_is() -> None:
    async def pages(ctx: StageContext[None]) -> AsyncIterator[int]:
        yield 1

    error = refused(lambda: stage("pages")(cast("Any", pages)))
    assert error.problems == (
        "a body returns its output and can't yield; collect what it makes and return that",
    )


class Job(BaseModel):
    x: int = 0


@pytest.mark.parametrize("body", [int, Job])
def test_a_class_is_no_body(body: object) -> None:
    error = refused(lambda: make("a", body, input=None, output=int))
    assert "must be a function, not the class" in str(error)
    error = refused(lambda: make("a", count, mode="async-batch", check_completion=body))
    assert "check_completion must be a function (state, ctx), not the class" in str(error)


@pytest.mark.parametrize("role", ["name", "description"])
def test_texts_must_be_text(role: str) -> None:
    options: dict[str, Any] = {role: 5}
    assert f"{role}=5 must be text" in str(refused(lambda: make("a", count, **options)))
    assert f"{role}=5 must be text" in str(refused(lambda: stage("a", **options)(cast("Any", count))))
    builder = define_workflow("w", input=None, **options).stage("a", lambda ctx: 1, input=None, output=int)
    assert f"{role}=5 must be text" in str(refused(builder.build))


def test_a_version_must_be_text() -> None:
    builder = define_workflow("w", input=None).stage("a", lambda ctx: 1, input=None, output=int)
    error = refused(builder.version(cast("Any", 5)).build)
    assert 'the version 5 must be text, such as .version("2")' in str(error)
    assert "is empty" in str(refused(builder.version(" ").build))


def test_classes_of_every_function_around_are_found() -> None:
    def outer() -> tuple[Stage[Any, Any, Any], type[BaseModel]]:
        class Outermost(BaseModel):
            x: int

        def middle() -> Stage[Any, Any, Any]:
            async def work(ctx: StageContext[Outermost]) -> list[Outermost]:
                return []

            class Owner:
                made: Stage[Any, Any, Any] = make("work", work)

            return Owner.made

        return middle(), Outermost

    made, outermost = outer()
    assert made.input_schema == Schema.of(outermost)
    assert made.output_schema == Schema.of(cast("Any", list)[outermost])


def test_the_nearest_of_two_classes_counts() -> None:
    class Order(BaseModel):
        x: int

    def inner() -> tuple[Stage[Any, Any, Any], type[BaseModel]]:
        class Order(BaseModel):
            y: str

        @stage("work")
        async def work(ctx: StageContext[Order]) -> Order:
            return ctx.input

        return work, Order

    made, nearest = inner()
    assert nearest is not Order
    assert made.input_schema == Schema.of(nearest)


def test_a_caller_that_is_no_function_around_lends_no_names() -> None:
    class Order(BaseModel):
        x: int

    error = refused(elsewhere)
    assert "can't be resolved" in str(error)
    assert Order(x=1).x == 1


def elsewhere() -> object:
    def inner() -> object:
        @stage("work")
        async def work(ctx: StageContext[Order]) -> int:  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]  # on purpose
            return 1

        return work

    return inner()
