"""Event plugins: functions that receive events of the types they ask for."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from stagewright.duration import LONGEST_DURATION, Duration, duration_or_problem
from stagewright.errors import (
    DefinitionError,
    DeliveryTimeoutError,
    PartialDeliveryError,
)
from stagewright.events import EVENT_TYPES, Event
from stagewright.runtime.event_delivery import refusal_of
from stagewright.runtime.failure import describe_exception

__all__ = ["EventHandler", "Plugin", "PluginRunner", "event_plugin"]

EventHandler: TypeAlias = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True, slots=True, init=False)
class Plugin:
    """Somebody who receives events.

    Attributes:
        id: Unique among the plugins of a sink; deliveries are recorded under it, so keep it when code moves.
        name: For people.
        on: The types of the events it receives.
        handle: Called with each of them. Delivery is at least once: `event.event_id` tells a repetition.
    """

    id: str
    name: str
    on: frozenset[str]
    handle: EventHandler

    def __init__(
        self, id: str, name: str | None, on: Iterable[str | type[Event]], handle: EventHandler
    ) -> None:
        """Describe a plugin.

        Args:
            id: Unique among the plugins of a sink.
            name: For people; None means the id.
            on: Types of events, as `"stage:failed"` or as classes of `stagewright.events`.
            handle: An `async def` of one event.

        Raises:
            DefinitionError: With everything that is wrong, such as an unknown type of event.
        """
        types, problems = _event_types(on)
        if not isinstance(id, str) or not id:
            problems.append("its id is empty" if id == "" else f"its id is {id!r}; it is text")
        if not _is_async(handle):
            problems.append("its handle is not an async function; write `async def handle(event)`")
        if problems:
            raise DefinitionError(f"event plugin {id!r}", tuple(problems))
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "name", name or id)
        object.__setattr__(self, "on", types)
        object.__setattr__(self, "handle", handle)


def event_plugin(
    id: str, *, on: Iterable[str | type[Event]], name: str | None = None
) -> Callable[[EventHandler], Plugin]:
    """Make a plugin of an `async def handle(event)`.

    Args:
        id: Unique among the plugins of a sink.
        on: Types of events, as `"stage:failed"` or as classes of `stagewright.events`.
        name: For people; None means the id.

    Raises:
        DefinitionError: When applied, with everything that is wrong.
    """

    def decorate(handle: EventHandler) -> Plugin:
        return Plugin(id, name, on, handle)

    return decorate


class PluginRunner:
    """An event sink that gives each event to the plugins that ask for its type.

    Plugins are called one after another, in the order given. One that fails, or takes too long, doesn't keep
    an event from those after it; the event is then offered again, and only to those that don't have it.
    """

    def __init__(self, plugins: Iterable[Plugin], max_retries: int = 3, *, timeout: Duration = "30s") -> None:
        """Make a sink.

        Args:
            plugins: With unique ids.
            max_retries: Refusals of one event until it becomes a dead letter, the first included; 0 counts as 1.
            timeout: How long each plugin may take over an event; after that it is cancelled and has refused it.

        Raises:
            DefinitionError: With everything that is wrong, such as two plugins with one id.
        """
        self.plugins, problems = _plugins(plugins)
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            problems.append(f"max_retries is {max_retries!r}; it is a whole number, zero or more")
        already = len(problems)
        limit = duration_or_problem(timeout, "timeout", problems)
        if not limit and len(problems) == already:
            problems.append(f"timeout is {timeout!r}; it must be longer than nothing")
        if problems:
            raise DefinitionError("plugin runner", tuple(problems))
        self.max_retries = max_retries
        self.timeout = limit

    @property
    def delivery_timeout(self) -> timedelta:
        """How long one event may take: what all plugins may take together, and once more for the runner itself."""
        return min(self.timeout * (len(self.plugins) + 1), LONGEST_DURATION)

    async def emit(self, event: Event) -> None:
        """Give the event to each subscriber that isn't in `event.delivered_to`.

        Raises:
            PartialDeliveryError: If a plugin failed; it names all that have the event by now.
        """
        subscribers = [plugin for plugin in self.plugins if event.type in plugin.on]
        delivered = set(event.delivered_to)
        failures: list[tuple[str, BaseException]] = []
        for plugin in subscribers:
            if plugin.id in delivered:
                continue
            refusal = await refusal_of(partial(plugin.handle, event), self.timeout)
            if refusal is None:
                delivered.add(plugin.id)
            else:
                failures.append((plugin.id, refusal))
        if failures:
            problem = "; ".join(
                f"plugin {id!r} failed: {describe_exception(error)}" for id, error in failures
            )
            errors = [error for _, error in failures]
            timed_out = any(isinstance(error, DeliveryTimeoutError) for error in errors)
            raise PartialDeliveryError(frozenset(delivered), problem, timed_out) from _cause(errors)


def _plugins(given: object) -> tuple[tuple[Plugin, ...], list[str]]:
    if isinstance(given, Plugin):
        return (), ["plugins is a single plugin; give a list, as PluginRunner([plugin])"]
    if isinstance(given, str) or not isinstance(given, Iterable):
        return (), [f"plugins is {given!r}; it is a list of event plugins"]
    listed: list[object] = list(given)
    plugins = tuple(one for one in listed if isinstance(one, Plugin))
    problems = [
        f"{one!r} is no event plugin; make one with @event_plugin(...) or Plugin(...)"
        for one in listed
        if not isinstance(one, Plugin)
    ]
    ids = [plugin.id for plugin in plugins]
    problems += [f"the id {id!r} is used twice" for id in dict.fromkeys(ids) if ids.count(id) > 1]
    return plugins, problems


def _event_types(on: Iterable[str | type[Event]]) -> tuple[frozenset[str], list[str]]:
    if isinstance(on, str):
        return frozenset(), [f"on={on!r} is text; give a list, as on=[{on!r}]"]
    if not isinstance(on, Iterable):
        return frozenset(), [f"on={on!r} is no list of event types; write for instance on=['stage:failed']"]
    names = [item.type if inspect.isclass(item) and issubclass(item, Event) else item for item in on]
    problems = [
        f"there is no event of type {name!r}; the types are {', '.join(EVENT_TYPES)}"
        for name in names
        if not isinstance(name, str) or name not in EVENT_TYPES
    ]
    known = frozenset(name for name in names if isinstance(name, str))
    return known, problems or ([] if names else ["it receives no event: on is empty"])


def _is_async(handle: EventHandler) -> bool:
    return inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(type(handle).__call__)


def _cause(errors: list[BaseException]) -> BaseException:
    return errors[0] if len(errors) == 1 else BaseExceptionGroup("several plugins failed", errors)
