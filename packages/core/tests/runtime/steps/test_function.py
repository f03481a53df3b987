"""What is read off a step's function, whatever kind of function it is."""

import functools
from collections.abc import Awaitable, Callable
from types import NoneType
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import StepRun
from stagewright.errors import DefinitionError
from stagewright.runtime.steps.function import StepFunction


class Paid(BaseModel):
    total: int


class Nothing(BaseModel): ...


class Cashier:
    async def pay(self) -> Paid:
        return Paid(total=1)

    def note(self, run: StepRun) -> None: ...

    @staticmethod
    async def fixed() -> int:
        return 1

    async def __call__(self) -> str:
        return ""


def _logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    return call


def _of_closure() -> tuple[Callable[..., Any], type]:
    class Paid(BaseModel):
        note: str

    async def pay() -> "Paid":  # this one, and not the module's
        return Paid(note="")  # pyright: ignore[reportReturnType] - the annotation is a name on purpose

    return pay, Paid


_PAY, _PAID = _of_closure()


async def _plain() -> int:
    return 1


async def _named() -> "Paid":
    return Paid(total=1)


async def _of_run(run: StepRun | None) -> "str | None":
    return None if run is None else run.external_key


async def _of_run_or_not(run: StepRun | None = None) -> list[int]:
    return []


async def _of_keyword(*, times: int = 1) -> "None":
    del times


async def _rest(*given: int) -> float:
    return float(sum(given))


def _handed_on() -> Awaitable[int]:
    return _plain()


def _blocking() -> int:
    return 1


@pytest.mark.parametrize(
    ("function", "takes_run", "is_blocking", "annotation"),
    [
        pytest.param(_plain, False, False, int, id="a coroutine function"),
        pytest.param(_named, False, False, Paid, id="a name"),
        pytest.param(_PAY, False, False, _PAID, id="a name that the functions around it define"),
        pytest.param(_of_run, True, False, str | None, id="with a run"),
        pytest.param(_of_run_or_not, False, False, list[int], id="with a run or without"),
        pytest.param(_of_keyword, False, False, NoneType, id="with a keyword"),
        pytest.param(_rest, False, False, float, id="with any number"),
        pytest.param(_handed_on, False, True, int, id="plain, with something to await"),
        pytest.param(_blocking, False, True, int, id="plain"),
        pytest.param(lambda: 1, False, True, Any, id="a lambda"),
        pytest.param(lambda number=2: number, False, True, Any, id="a lambda with a default"),
        pytest.param(lambda run: run.attempt, True, True, Any, id="a lambda with a run"),
        pytest.param(Cashier().pay, False, False, Paid, id="a method"),
        pytest.param(Cashier().note, True, True, NoneType, id="a method with a run"),
        pytest.param(Cashier.fixed, False, False, int, id="a static method"),
        pytest.param(Cashier(), False, False, str, id="an object"),
        pytest.param(Nothing, False, True, Nothing, id="a class"),
        pytest.param(_logged(_plain), False, False, int, id="wrapped"),
        pytest.param(_logged(_of_run), True, False, str | None, id="wrapped, with a run"),
        pytest.param(functools.partial(_of_run, None), False, False, str | None, id="partial"),
        pytest.param(functools.partial(_of_run), True, False, str | None, id="partial of nothing"),
        pytest.param(
            functools.partial(_of_keyword, times=2), False, False, NoneType, id="partial of a keyword"
        ),
        pytest.param(functools.partial(Cashier.pay, Cashier()), False, False, Paid, id="partial of a method"),
        pytest.param(functools.partial(_rest, 1, 2), False, False, float, id="partial of any number"),
        pytest.param(dict, False, True, dict, id="built in"),
    ],
)
def test_a_function_is_read(
    function: Callable[..., Any], takes_run: bool, is_blocking: bool, annotation: object
) -> None:
    for _ in range(2):  # what was read once is kept
        read = StepFunction.read("step", function, None)
        assert (read.takes_run, read.is_blocking) == (takes_run, is_blocking)
        assert read.schema.annotation == annotation
    given = StepFunction.read("step", function, str)
    assert (given.takes_run, given.is_blocking, given.schema.annotation) == (takes_run, is_blocking, str)


def test_a_function_that_is_changed_is_read_anew() -> None:
    async def pay() -> int:
        return 1

    assert StepFunction.read("step", pay, None).schema.annotation is int
    pay.__annotations__["return"] = str
    assert StepFunction.read("step", pay, None).schema.annotation is str
    pay.__annotations__.clear()
    assert StepFunction.read("step", pay, None).schema.annotation is Any


def _generator() -> Any:
    yield 1


async def _needs_two(run: StepRun, number: int) -> int:
    return number


async def _needs_a_keyword(*, number: int) -> int:
    return number


async def _unknown() -> "Unheard":  # type: ignore[name-defined]  # noqa: F821 - what can't be resolved is refused
    return None


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_generator, "is a generator"),
        (_needs_two, "needs run, number"),
        (_needs_a_keyword, "needs number"),
        (_unknown, "can't be resolved"),
    ],
)
def test_a_function_that_is_none_for_a_step_is_refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        StepFunction.read("step", function, None)
    assert said in str(refused.value)


def test_a_poll_takes_no_run() -> None:
    with pytest.raises(DefinitionError, match="it is called with nothing"):
        StepFunction.read("step", _of_run, None, role="poll")
