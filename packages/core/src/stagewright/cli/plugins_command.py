import click
from rich.console import Console

from stagewright.cli.console import output_console, plain_table
from stagewright.cli.printable import one_line
from stagewright.plugins import DISABLE_VARIABLE, DiscoveredPlugin, PluginSet

__all__ = ["plugins_command"]


@click.command("plugins")
@click.pass_obj
def plugins_command(plugins: PluginSet) -> None:
    """List the installed plugins, what they bring, and why one isn't loaded."""
    console = output_console()
    if plugins:
        brought = {plugin.id: _brought(plugins, plugin) for plugin in plugins}
        rows = [(plugin.id, plugin.version, plugin.state, brought[plugin.id]) for plugin in plugins]
        console.print(plain_table(("plugin", "version", "state", "brings"), rows))
    else:
        console.print("no plugins are installed")
    _print_notes(console, plugins)


def _brought(plugins: PluginSet, plugin: DiscoveredPlugin) -> str:
    parts = [
        *(f"{scheme}://" for scheme in plugins.adapters_of(plugin).schemes),
        *(f"host {name}" for name in plugins.hosts_of(plugin)),
    ]
    group = click.Group()
    plugin.call("stagewright_cli", group=group)
    parts += [f"command {name}" for name in group.commands]
    parts += [f"events to {receiver.id}" for receiver in PluginSet([plugin]).event_plugins()]
    parts += ["middleware"] * bool(PluginSet([plugin]).middleware())
    parts += ["conformance targets"] * bool(PluginSet([plugin]).conformance_targets())
    return ", ".join(parts) if plugin.state == "loaded" else ""


def _print_notes(console: Console, plugins: PluginSet) -> None:
    for plugin in plugins.failed:
        console.print(one_line(f"{plugin.id}: {plugin.problem}"), style="red")
    for conflict in plugins.conflicts():
        console.print(one_line(str(conflict)), style="red")
    for name in plugins.unknown_disabled:
        text = f"warning: {DISABLE_VARIABLE} names {name!r}, and no installed plugin is called that"
        console.print(one_line(text), style="yellow")
