from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from stagewright.errors import DefinitionError, PartialDeliveryError
from stagewright.events import Event, StageFailed, WorkflowCancelled
from stagewright.plugins import Plugin, PluginRunner, event_plugin
from stagewright.ports import DeliveryLimit, EventSink, RetryBudget

CANCELLED = WorkflowCancelled(timestamp=datetime(2025, 1, 1, tzinfo=UTC), run_id="r1")

Handler = Callable[[Event], Awaitable[None]]


def noting(seen: list[str], name: str) -> Handler:
    async def handle(event: Event) -> None:
        seen.append(name)

    return handle


async def refuse(event: Event) -> None:
    raise ValueError("the hook is down")


def test_the_decorator_makes_a_plugin() -> None:
    @event_plugin("audit", on=["stage:failed", WorkflowCancelled], name="Audit trail")
    async def audit(event: Event) -> None: ...

    assert (audit.id, audit.name) == ("audit", "Audit trail")
    assert audit.on == frozenset({"stage:failed", "workflow:cancelled"})
    assert Plugin("x", None, [StageFailed], refuse).name == "x"


def test_objects_and_partials_may_handle() -> None:
    class Handle:
        async def __call__(self, event: Event) -> None: ...

    async def with_more(more: int, event: Event) -> None: ...

    assert Plugin("a", "a", ["stage:failed"], Handle()).id == "a"
    assert Plugin("b", "b", ["stage:failed"], partial(with_more, 1)).id == "b"


def test_all_problems_of_a_plugin_come_at_once() -> None:
    def handle(event: Event) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        Plugin("", "x", ["stage:faild"], handle)  # type: ignore[arg-type] # the error is under test
    text = str(caught.value)
    assert "'stage:faild'" in text
    assert "stage:failed" in text
    assert "async def handle(event)" in text
    assert "its id is empty" in text


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        ("stage:failed", "give a list"),
        ([], "receives no event"),
        (None, "on=None is no list of event types; write for instance"),
        (5, "on=5 is no list of event types"),
        ([5], "there is no event of type 5; the types are"),
        ([None, "stage:failed"], "there is no event of type None; the types are"),
        ([int], "there is no event of type <class 'int'>; the types are"),
        ([[]], r"there is no event of type \[\]; the types are"),
        (StageFailed, "is no list of event types"),
    ],
)
def test_what_is_no_list_of_event_types_is_refused(on: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Plugin("x", "x", on, refuse)
    with pytest.raises(DefinitionError, match=problem):
        event_plugin("x", on=on)(refuse)


def test_an_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(DefinitionError, match="its id is 5; it is text"):
        Plugin(5, "x", ["stage:failed"], refuse)  # type: ignore[arg-type] # the error is under test


def test_a_runner_refuses_one_id_twice_and_a_negative_budget() -> None:
    plugin = Plugin("x", "x", ["stage:failed"], refuse)
    with pytest.raises(DefinitionError, match=r"'x' is used twice[\s\S]*-1"):
        PluginRunner([plugin, plugin], max_retries=-1)


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [
        (5, "plugins is 5; it is a list of event plugins"),
        ("audit", "plugins is 'audit'; it is a list of event plugins"),
        (None, "plugins is None; it is a list of event plugins"),
        ([5], "5 is no event plugin; make one with @event_plugin"),
        ([refuse], "is no event plugin; make one with @event_plugin"),
        (
            Plugin("x", "x", ["stage:failed"], refuse),
            r"a single plugin; give a list, as PluginRunner\(\[plugin\]\)",
        ),
    ],
)
def test_a_runner_refuses_what_is_no_list_of_plugins(plugins: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        PluginRunner(plugins)


@pytest.mark.parametrize("budget", ["3", 1.5, True, None])
def test_a_runner_refuses_a_budget_that_is_no_number(budget: Any) -> None:
    with pytest.raises(DefinitionError, match="max_retries is .*; it is a whole number, zero or more"):
        PluginRunner([], max_retries=budget)


@pytest.mark.parametrize(
    ("timeout", "problem"),
    [
        ("soon", "'soon' is not a duration"),
        (0, "timeout is 0; it must be longer than nothing"),
        (None, "None"),
    ],
)
def test_a_runner_refuses_a_limit_that_is_no_time(timeout: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        PluginRunner([], timeout=timeout)


def test_a_runner_has_time_for_all_its_plugins() -> None:
    plugins = [Plugin(id, None, ["stage:failed"], refuse) for id in ("a", "b")]
    runner = PluginRunner(plugins, timeout="10s")
    assert isinstance(runner, DeliveryLimit)
    assert runner.delivery_timeout > 2 * runner.timeout == timedelta(seconds=20)
    assert PluginRunner(plugins).timeout == timedelta(seconds=30)


def test_a_runner_is_a_sink_with_a_budget() -> None:
    runner: EventSink = PluginRunner([], max_retries=5)
    assert isinstance(runner, RetryBudget)
    assert runner.max_retries == 5
    assert PluginRunner([]).max_retries == 3


@pytest.mark.guarantee("plugins.subscribers-in-order")
async def test_subscribers_get_the_event_in_the_order_given() -> None:
    seen: list[str] = []
    await PluginRunner(
        [
            Plugin("b", None, ["workflow:cancelled", "stage:failed"], noting(seen, "b")),
            Plugin("other", None, ["stage:failed"], noting(seen, "other")),
            Plugin("a", None, ["workflow:cancelled"], noting(seen, "a")),
        ]
    ).emit(CANCELLED)
    assert seen == ["b", "a"]


async def test_an_event_that_nobody_asks_for_is_accepted() -> None:
    await PluginRunner([]).emit(CANCELLED)


@pytest.mark.guarantee("plugins.retry-skips-who-has-it")
async def test_a_retry_reaches_only_those_that_do_not_have_the_event() -> None:
    seen: list[str] = []
    broken = True

    async def moody(event: Event) -> None:
        if broken:
            raise ValueError("the hook is down")
        seen.append("moody")

    runner = PluginRunner(
        [
            Plugin("before", None, ["workflow:cancelled"], noting(seen, "before")),
            Plugin("moody", None, ["workflow:cancelled"], moody),
            Plugin("after", None, ["workflow:cancelled"], noting(seen, "after")),
        ]
    )
    with pytest.raises(
        PartialDeliveryError, match="plugin 'moody' failed: ValueError: the hook is down"
    ) as caught:
        await runner.emit(CANCELLED)
    assert caught.value.delivered == {"before", "after"}
    assert isinstance(caught.value.__cause__, ValueError)
    assert seen == ["before", "after"]

    broken = False
    await runner.emit(replace(CANCELLED, delivered_to=caught.value.delivered))
    assert seen == ["before", "after", "moody"]


async def test_several_failures_are_all_named() -> None:
    runner = PluginRunner([Plugin(id, None, ["workflow:cancelled"], refuse) for id in ("a", "b")])
    with pytest.raises(PartialDeliveryError, match="'a' failed.*'b' failed") as caught:
        await runner.emit(CANCELLED)
    assert caught.value.delivered == frozenset()
    assert isinstance(caught.value.__cause__, ExceptionGroup)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


async def test_an_error_that_can_not_be_printed_hides_nobody_who_has_the_event() -> None:
    async def refuse_oddly(event: Event) -> None:
        raise UnprintableError

    seen: list[str] = []
    runner = PluginRunner(
        [
            Plugin("odd", None, ["workflow:cancelled"], refuse_oddly),
            Plugin("sound", None, ["workflow:cancelled"], noting(seen, "sound")),
        ]
    )
    with pytest.raises(PartialDeliveryError, match="plugin 'odd' failed: UnprintableError") as caught:
        await runner.emit(CANCELLED)
    assert caught.value.delivered == {"sound"}
    assert seen == ["sound"]


async def test_who_had_it_before_still_counts_when_others_fail_again() -> None:
    runner = PluginRunner([Plugin("a", None, ["workflow:cancelled"], refuse)])
    with pytest.raises(PartialDeliveryError) as caught:
        await runner.emit(replace(CANCELLED, delivered_to=frozenset({"gone"})))
    assert caught.value.delivered == {"gone"}
