import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from stagewright.errors import DefinitionError, PluginConflictError

__all__ = ["Host", "HostFactory", "HostRegistry"]

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Host(Protocol):
    """Something that works on runs until it is told to stop."""

    async def run(self) -> None:
        """Work until a signal or a cancellation ends it."""
        ...


# Any arguments: a plugin lies below the kernel and can't import its class; what else a factory takes is its own.
HostFactory: TypeAlias = Callable[..., Host]
"""Makes a host: the kernel comes first, the host's own settings by keyword."""


class HostRegistry:
    """The hosts of a plugin, by name."""

    def __init__(self, owner: str = "application") -> None:
        """Start without hosts.

        Args:
            owner: Whose hosts these are, for errors.
        """
        self.owner = owner
        self._factories: dict[str, HostFactory] = {}

    @property
    def factories(self) -> Mapping[str, HostFactory]:
        """What was added, by name."""
        return MappingProxyType(self._factories)

    def add(self, name: str, factory: HostFactory) -> None:
        """Offer a host.

        Args:
            name: Lower-case letters and digits, words joined by dashes.
            factory: Makes the host for a kernel.

        Raises:
            DefinitionError: If the name is not of that form.
            PluginConflictError: If this registry has the name already.
        """
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f"host {name!r} of {self.owner}", ("a name is lower-case words joined by dashes",)
            )
        if name in self._factories:
            raise PluginConflictError(f"host {name!r}", (self.owner, self.owner))
        self._factories[name] = factory
