"""Extending Stagewright: hooks for adapters, hosts, event plugins, middleware and commands, and how they are found."""

from stagewright.plugins import hookspecs
from stagewright.plugins.adapters import AdapterOpener, AdapterOptions, AdapterRegistry, AdapterSet, redacted
from stagewright.plugins.conformance_targets import ConformanceTarget
from stagewright.plugins.discovery import DISABLE_VARIABLE, DiscoveredPlugin, PluginSet, discover_plugins
from stagewright.plugins.event_plugins import EventHandler, Plugin, PluginRunner, event_plugin
from stagewright.plugins.hookspecs import hookimpl
from stagewright.plugins.hosts import Host, HostFactory, HostRegistry
from stagewright.plugins.middleware import DispatchMiddleware

__all__ = [
    "DISABLE_VARIABLE",
    "AdapterOpener",
    "AdapterOptions",
    "AdapterRegistry",
    "AdapterSet",
    "ConformanceTarget",
    "DiscoveredPlugin",
    "DispatchMiddleware",
    "EventHandler",
    "Host",
    "HostFactory",
    "HostRegistry",
    "Plugin",
    "PluginRunner",
    "PluginSet",
    "discover_plugins",
    "event_plugin",
    "hookimpl",
    "hookspecs",
    "redacted",
]
