"""The commands that plugins add, each plugin's on its own."""

import click

from stagewright.errors import PluginConflictError
from stagewright.plugins import PluginSet

__all__ = ["add_plugin_commands"]


def add_plugin_commands(application: click.Group, plugins: PluginSet) -> None:
    """Add what every plugin has to add.

    A plugin that would replace a command of core fails. A command that two plugins add raises when it is used.
    """
    own = frozenset(application.commands)
    owners: dict[str, str] = {}
    for plugin in plugins:
        collected = click.Group()
        plugin.call("stagewright_cli", group=collected)
        if plugin.state != "loaded":
            continue
        taken = sorted(own & set(collected.commands))
        if taken:
            plugin.fail(f"it adds the command {taken[0]!r}, which is stagewright-core's")
            continue
        for name, command in collected.commands.items():
            first = owners.setdefault(name, plugin.id)
            conflict = PluginConflictError(f"command {name!r}", (first, plugin.id))
            application.add_command(command if first == plugin.id else _disputed(name, conflict), name)


def _disputed(name: str, conflict: PluginConflictError) -> click.Command:
    def refuse() -> None:
        raise conflict

    return click.Command(
        name,
        callback=refuse,
        short_help="(claimed by two plugins)",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
