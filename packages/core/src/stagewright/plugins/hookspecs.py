"""What a plugin may implement. A plugin is a module or an object behind an entry point of the group `stagewright`.

Every hook is optional. Hooks are synchronous, have no side effects and give objects; whatever is asynchronous happens
on what they give. A hook is called again whenever its answer is needed.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import pluggy

from stagewright.plugins.adapters import AdapterRegistry
from stagewright.plugins.conformance_targets import ConformanceTarget
from stagewright.plugins.event_plugins import Plugin
from stagewright.plugins.hosts import HostRegistry
from stagewright.plugins.middleware import DispatchMiddleware

__all__ = [
    "PROJECT_NAME",
    "CommandGroup",
    "hookimpl",
    "hookspec",
    "stagewright_cli",
    "stagewright_conformance_targets",
    "stagewright_event_plugins",
    "stagewright_middleware",
    "stagewright_register_adapters",
    "stagewright_register_hosts",
]

PROJECT_NAME = "stagewright"
"""The project name of pluggy and the group of the entry points."""

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)
"""Marks a function of a plugin as the implementation of the hook of the same name."""


class CommandGroup(Protocol):
    """The part of `click.Group` that a plugin needs; the core itself does without click."""

    def add_command(self, cmd: Any, name: str | None = None) -> None:  # Any: a click.Command
        """Add a command under its own name or another."""
        ...


@hookspec
def stagewright_register_adapters(registry: AdapterRegistry) -> None:
    """Say which URLs this plugin opens, with `registry.add(scheme, opener)`.

    An opener that heeds `AdapterOptions.schema` and `table_prefix` is added with `takes_names=True`.

    Args:
        registry: This plugin's own; what another plugin claims shows only when the URL is opened.
    """


@hookspec
def stagewright_register_hosts(registry: HostRegistry) -> None:
    """Say which hosts this plugin has, with `registry.add(name, factory)`."""


@hookspec
def stagewright_event_plugins() -> Iterable[Plugin]:  # type: ignore[empty-body] # a hook specification has none
    """Event plugins that the default event sink delivers to, in the order given."""


@hookspec
def stagewright_middleware() -> Iterable[DispatchMiddleware]:  # type: ignore[empty-body] # as above
    """Middleware around every dispatch, the outermost first."""


@hookspec
def stagewright_cli(group: CommandGroup) -> None:
    """Add click commands to the command `stagewright`, with `group.add_command(command)`.

    A command that has the name of another is an error that names both plugins.
    """


@hookspec
def stagewright_conformance_targets() -> Iterable[ConformanceTarget]:  # type: ignore[empty-body] # as above
    """What the conformance suite can be pointed at; a name that another plugin has is an error that names both."""
