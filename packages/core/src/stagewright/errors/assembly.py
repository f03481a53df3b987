"""Kernels and plugins that don't fit together."""

from dataclasses import dataclass

from stagewright.errors.root import StagewrightError, listed

__all__ = [
    "CapabilityMissingError",
    "ForkedProcessError",
    "InvalidAdapterError",
    "InvalidSettingError",
    "KernelClosedError",
    "MissingDriverError",
    "PluginConflictError",
    "PluginLoadError",
    "PortNotServedError",
    "UnknownSchemeError",
]


@dataclass(eq=False)
class InvalidSettingError(StagewrightError, ValueError):
    """A setting that a kernel or a host can't work with.

    Attributes:
        setting: The argument's name.
        value: What was given.
        problem: What is wrong with it, and the fix.
    """

    setting: str
    value: object
    problem: str

    def __str__(self) -> str:
        return f"{self.setting}={self.value!r} {self.problem}"


@dataclass(eq=False)
class ForkedProcessError(StagewrightError, RuntimeError):
    """Something is used in a forked child whose connections, threads and event loop stayed with the parent.

    Attributes:
        what: What was used.
    """

    what: str

    def __str__(self) -> str:
        return (
            f"{self.what} was made before the process forked; its connections and threads stayed with the parent, so "
            "make a new one in each child"
        )


class KernelClosedError(StagewrightError, RuntimeError):
    """A kernel is used after the end of the `async with open_kernel(…)` block that had opened it."""

    def __str__(self) -> str:
        return "this kernel is closed; use it inside its `async with open_kernel(...)` block, or open another"


@dataclass(eq=False)
class CapabilityMissingError(StagewrightError):
    """An adapter lacks what the kernel needs of it."""

    adapter: str
    capability: str
    fix: str

    def __str__(self) -> str:
        return f"{self.adapter} doesn't offer {self.capability}; {self.fix}"


@dataclass(eq=False)
class PluginLoadError(StagewrightError):
    """A plugin was asked for that could not be loaded."""

    plugin: str
    problem: str

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} could not be loaded: {self.problem}"


@dataclass(eq=False)
class PluginConflictError(StagewrightError):
    """Two plugins claim the same thing."""

    claim: str
    plugins: tuple[str, str]

    def __str__(self) -> str:
        first, second = self.plugins
        return (
            f"{self.claim} is claimed by both {first!r} and {second!r}; remove one, or block it by name with "
            "STAGEWRIGHT_DISABLE_PLUGINS"
        )


@dataclass(eq=False)
class InvalidAdapterError(StagewrightError):
    """A plugin claims a URL scheme with something that is no adapter.

    Attributes:
        plugin: Who claims the scheme.
        scheme: The scheme.
        problem: What is wrong with its opener, and the fix.
    """

    plugin: str
    scheme: str
    problem: str

    def __str__(self) -> str:
        return f"the adapter of {self.plugin!r} for {self.scheme!r} URLs can't be used: {self.problem}"


@dataclass(eq=False)
class UnknownSchemeError(StagewrightError):
    """No installed adapter opens that URL.

    Attributes:
        url: The URL, without its secrets.
        known: The schemes that can be opened here.
        failed_plugins: Plugins that failed to load, of which one may have opened it.
    """

    url: str
    known: tuple[str, ...]
    failed_plugins: tuple[str, ...] = ()

    def __str__(self) -> str:
        failed = (
            f"; plugins that failed to load: {listed(self.failed_plugins)}" if self.failed_plugins else ""
        )
        scheme, mark, _ = self.url.partition("://")
        wanted = f"install an adapter that opens {scheme.partition('+')[0]} URLs" if mark else "write a URL"
        known = " or ".join(f"{name}://" for name in self.known)
        return f"no installed adapter opens {self.url!r}; {wanted}, or use {known}{failed}"


@dataclass(eq=False)
class MissingDriverError(StagewrightError):
    """No driver for a database is installed."""

    database: str
    modules: tuple[str, ...]

    def __str__(self) -> str:
        one_of = "one of " if len(self.modules) > 1 else ""
        return f"no driver for {self.database} is installed; install {one_of}{listed(self.modules)}"


@dataclass(eq=False)
class PortNotServedError(StagewrightError):
    """The adapter behind a URL doesn't offer that port."""

    port: str
    url: str
    served: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.url!r} can't serve as {self.port}; it serves {listed(self.served)}"
