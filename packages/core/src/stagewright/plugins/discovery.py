"""Finding installed plugins, one by one, so that a broken one takes no other down."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal, TypeAlias

import pluggy

from stagewright.errors import PluginConflictError, PluginLoadError
from stagewright.plugins import hookspecs
from stagewright.plugins.adapters import AdapterRegistry
from stagewright.plugins.conformance_targets import ConformanceTarget
from stagewright.plugins.core_requirement import core_version, newer_core_needed
from stagewright.plugins.event_plugins import Plugin
from stagewright.plugins.hosts import HostFactory, HostRegistry
from stagewright.plugins.middleware import DispatchMiddleware

__all__ = ["DISABLE_VARIABLE", "DiscoveredPlugin", "PluginSet", "PluginState", "discover_plugins"]

DISABLE_VARIABLE: Final = "STAGEWRIGHT_DISABLE_PLUGINS"
"""Names of plugins, separated by commas, that are not loaded: entry-point names or `distribution:name`."""

PluginState: TypeAlias = Literal["loaded", "failed", "disabled"]


@dataclass(slots=True)
class DiscoveredPlugin:
    """One entry point and what became of it.

    Attributes:
        id: `distribution:name`, under which it is registered.
        version: The version of its distribution; empty when that has none.
        state: `failed` also when one of its hooks raised later on.
        problem: Why it failed.
        manager: Where it is registered, alone; None unless it is loaded.
    """

    id: str
    version: str
    state: PluginState
    problem: str | None = None
    manager: pluggy.PluginManager | None = field(default=None, repr=False)

    def fail(self, problem: str) -> None:
        """Take it out of use."""
        self.state, self.problem, self.manager = "failed", problem, None

    def call(self, hook: str, **arguments: object) -> list[Any]:  # Any: what the hook's specification says
        """Call one hook of this plugin.

        Returns:
            The answer, or nothing if the plugin isn't loaded, has no such hook, or just failed in it.
        """
        if self.manager is None:
            return []
        try:
            answers: list[Any] = getattr(self.manager.hook, hook)(**arguments)
        except (Exception, SystemExit) as error:
            self.fail(f"{hook} raised {_described(error)}")
            return []
        return answers


class PluginSet:
    """The plugins of a process, loaded or not."""

    def __init__(
        self, plugins: Iterable[DiscoveredPlugin] = (), *, unknown_disabled: Iterable[str] = ()
    ) -> None:
        """Keep plugins in the order in which they are asked.

        Args:
            plugins: The plugins.
            unknown_disabled: Names that were disabled and that no plugin has.
        """
        self._plugins = tuple(plugins)
        self.unknown_disabled = tuple(unknown_disabled)

    def __iter__(self) -> Iterator[DiscoveredPlugin]:
        return iter(self._plugins)

    def __len__(self) -> int:
        return len(self._plugins)

    @property
    def failed(self) -> tuple[DiscoveredPlugin, ...]:
        """Those that failed so far."""
        return tuple(plugin for plugin in self if plugin.state == "failed")

    def with_plugin(self, name: str, plugin: object) -> "PluginSet":
        """This set and a plugin that no distribution declares, such as a module of the application.

        Args:
            name: Registers it as `application:name`.
            plugin: A module or an object with hooks.
        """
        added = _registered(f"application:{name}", "", lambda: plugin)
        return PluginSet((*self, added), unknown_disabled=self.unknown_disabled)

    def require(self, name: str) -> DiscoveredPlugin:
        """The loaded plugin of that name, given as an entry-point name or as `distribution:name`.

        Raises:
            PluginLoadError: If there is none, or it isn't loaded; with the reason.
        """
        named = [plugin for plugin in self if name in _names(plugin.id)]
        for plugin in named:
            if plugin.state == "loaded":
                return plugin
        if not named:
            raise PluginLoadError(name, "no installed distribution declares it")
        raise PluginLoadError(named[0].id, named[0].problem or f"it is disabled by {DISABLE_VARIABLE}")

    def adapters(self) -> AdapterRegistry:
        """The adapters of all plugins in one new registry."""
        together = AdapterRegistry()
        for plugin in self:
            together.include(self.adapters_of(plugin))
        return together

    def adapters_of(self, plugin: DiscoveredPlugin) -> AdapterRegistry:
        """The adapters of one plugin."""
        registry = AdapterRegistry(plugin.id)
        plugin.call("stagewright_register_adapters", registry=registry)
        return registry if plugin.state == "loaded" else AdapterRegistry(plugin.id)

    def hosts(self) -> Mapping[str, HostFactory]:
        """The hosts of all plugins by name.

        Raises:
            PluginConflictError: If two plugins claim one name.
        """
        owners = _Owners("host")
        found: dict[str, HostFactory] = {}
        for plugin in self:
            for name, factory in self.hosts_of(plugin).items():
                owners.claim(name, plugin.id)
                found[name] = factory
        return found

    def hosts_of(self, plugin: DiscoveredPlugin) -> Mapping[str, HostFactory]:
        """The hosts of one plugin by name."""
        registry = HostRegistry(plugin.id)
        plugin.call("stagewright_register_hosts", registry=registry)
        return registry.factories if plugin.state == "loaded" else {}

    def event_plugins(self) -> tuple[Plugin, ...]:
        """The event plugins of all plugins.

        Raises:
            PluginConflictError: If two of them have one id.
        """
        owners = _Owners("event plugin")
        found: list[Plugin] = []
        for plugin in self:
            for event_plugin in _listed(plugin, "stagewright_event_plugins", Plugin):
                owners.claim(event_plugin.id, plugin.id)
                found.append(event_plugin)
        return tuple(found)

    def middleware(self) -> tuple[DispatchMiddleware, ...]:
        """The middleware of all plugins, the outermost first."""
        return tuple(
            layer for plugin in self for layer in _listed(plugin, "stagewright_middleware", Callable)
        )

    def conflicts(self) -> tuple[PluginConflictError, ...]:
        """What two plugins claim both; using one of these raises the error."""
        found = list(self.adapters().conflicts)
        for gather in (self.hosts, self.event_plugins, self.conformance_targets):
            try:
                gather()
            except PluginConflictError as error:
                found.append(error)
        return tuple(found)

    def conformance_targets(self) -> tuple[ConformanceTarget, ...]:
        """What the conformance suite can be pointed at.

        Raises:
            PluginConflictError: If two plugins give one name to theirs.
        """
        owners = _Owners("conformance target")
        found: list[ConformanceTarget] = []
        for plugin in self:
            for target in _listed(plugin, "stagewright_conformance_targets", ConformanceTarget):
                owners.claim(target.name, plugin.id)
                found.append(target)
        return tuple(found)


def discover_plugins(environment: Mapping[str, str] | None = None) -> PluginSet:
    """Load every entry point of the group `stagewright`, each on its own.

    Args:
        environment: Where `STAGEWRIGHT_DISABLE_PLUGINS` is read; None means the process's environment.

    Returns:
        All of them, sorted by `distribution:name`, those that failed and those that are disabled included.
    """
    text = (os.environ if environment is None else environment).get(DISABLE_VARIABLE, "")
    disabled = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    running = core_version()
    points = sorted(entry_points(group=hookspecs.PROJECT_NAME), key=_plugin_id)
    named = set[str]().union(*(_names(_plugin_id(point)) for point in points))
    return PluginSet(
        [_discovered(point, set(disabled), running) for point in points],
        unknown_disabled=[name for name in disabled if name not in named],
    )


def _discovered(point: EntryPoint, disabled: set[str], running: str | None) -> DiscoveredPlugin:
    plugin_id = _plugin_id(point)
    version = "" if point.dist is None else point.dist.version
    if disabled & _names(plugin_id):
        return DiscoveredPlugin(plugin_id, version, "disabled")
    needed = None if point.dist is None else newer_core_needed(point.dist, running)
    if needed is not None:
        return DiscoveredPlugin(plugin_id, version, "failed", f"it needs {needed}, and this is {running}")
    return _registered(plugin_id, version, point.load)


def _registered(plugin_id: str, version: str, load: Callable[[], object]) -> DiscoveredPlugin:
    plugin = DiscoveredPlugin(plugin_id, version, "loaded")
    try:
        manager = pluggy.PluginManager(hookspecs.PROJECT_NAME)
        manager.add_hookspecs(hookspecs)
        loaded = load()
        manager.register(loaded, plugin_id)
        manager.check_pending()
        if not manager.get_hookcallers(loaded):
            raise PluginLoadError(plugin_id, "it implements no hook; mark its functions with @hookimpl")
    except PluginLoadError as error:
        plugin.fail(error.problem)
    except (Exception, SystemExit) as error:
        plugin.fail(_described(error))
    else:
        plugin.manager = manager
    return plugin


def _plugin_id(point: EntryPoint) -> str:
    return f"{'unknown' if point.dist is None else point.dist.name}:{point.name}"


def _names(plugin_id: str) -> set[str]:
    return {plugin_id, plugin_id.partition(":")[2]}


def _described(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _listed(plugin: DiscoveredPlugin, hook: str, kind: Any) -> list[Any]:
    """The items of a hook that answers with an iterable; the plugin fails if one of them isn't of that kind."""
    found: list[Any] = []
    for answer in plugin.call(hook):
        try:
            found.extend(answer)
        except (Exception, SystemExit) as error:
            plugin.fail(f"{hook} gave no list: {_described(error)}")
            return []
    wrong = [item for item in found if not isinstance(item, kind)]
    if wrong:
        plugin.fail(f"{hook} gave {wrong[0]!r}, which is of the wrong type")
        return []
    return found


class _Owners:
    """Who claimed which name; the second one raises."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._owners: dict[str, str] = {}

    def claim(self, name: str, plugin_id: str) -> None:
        first = self._owners.setdefault(name, plugin_id)
        if first != plugin_id:
            raise PluginConflictError(f"{self._what} {name!r}", (first, plugin_id))
