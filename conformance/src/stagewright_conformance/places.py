"""Where the suites run: the stores behind one or several URLs, as a kernel would be opened over them."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from stagewright.errors import InvalidSettingError
from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet, ConformanceTarget
from stagewright.plugins.adapters import redacted
from stagewright.ports import Persistence
from stagewright_conformance.capabilities import CAPABILITY_NAMES, Capabilities
from stagewright_conformance.targets import target_of

__all__ = ["ENGINE", "PORTS", "OpenedPlace", "Place", "Store", "store_at"]

PORTS: Final = (
    "persistence",
    "job_transport",
    "step_ledger",
    "blob_store",
    "run_reader",
    "ai_call_logger",
    "event_sink",
    "engine",
)
"""The ports that have suites, as `AdapterSet` calls them, and the engine over all of them."""

ENGINE: Final = "engine"

_GIVEN_APART: Final = {"job_transport": "jobs", "blob_store": "blobs", "step_ledger": "steps"}
"""The ports that a URL of their own may serve, and how they are called in a place's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """What is behind one URL.

    Attributes:
        url: The URL as it was given, perhaps with `{folder}`.
        target: Which installed target describes it; None if none does.
        lacks: The capabilities that its adapters lack.
    """

    url: str
    target: ConformanceTarget | None = None
    lacks: frozenset[str] = frozenset()

    @property
    def opens_anew(self) -> bool:
        """Whether two openings have nothing in common."""
        return self.target is not None and self.target.opens_anew

    @property
    def is_new_each_time(self) -> bool:
        """Whether each test has one of its own anyway, so that nothing has to be emptied."""
        return self.opens_anew or "{folder}" in self.url

    @property
    def capabilities(self) -> Capabilities:
        """What its adapters can do, as they declare it."""
        return Capabilities(**dict.fromkeys(self.lacks, False))

    def at(self, folder: str) -> str:
        """The URL to open; one with `{folder}` is at a folder."""
        return self.url.replace("{folder}", folder)


def store_at(url: str, targets: Iterable[ConformanceTarget], *, lacks: Iterable[str] = ()) -> Store:
    """The store behind a URL, with what its target declares.

    Args:
        url: The URL, perhaps with `{folder}`.
        targets: All that are installed.
        lacks: Further capabilities that the adapters lack.

    Raises:
        InvalidSettingError: If there is no capability of such a name.
    """
    target = target_of(url, targets)
    lacking = frozenset((*lacks, *(() if target is None else target.lacks)))
    for name in sorted(lacking - CAPABILITY_NAMES):
        declared = target is not None and name in target.lacks
        known = ", ".join(sorted(CAPABILITY_NAMES))
        subject = f"lacks of the conformance target {target.name!r}" if declared and target else "lacks"
        raise InvalidSettingError(subject, name, f"must be one of the capabilities {known}")
    return Store(url=url, target=target, lacks=lacking)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One set-up to run the suites on.

    Attributes:
        home: Serves every port that no other store is given for.
        apart: The stores of single ports, by port.
        label: What it is called instead of by its URLs.
    """

    home: Store
    apart: Mapping[str, Store] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """What it is called in the report; without passwords."""
        parts = [redacted(self.home.url)]
        parts += [f"{_GIVEN_APART[port]} {redacted(store.url)}" for port, store in self.apart.items()]
        return self.label or ", ".join(parts)

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores of it, each once."""
        return tuple({store.url: store for store in (self.home, *self.apart.values())}.values())

    def store_of(self, port: str) -> Store:
        """The store that serves a port."""
        return self.apart.get(port, self.home)

    @asynccontextmanager
    async def opened(
        self,
        registry: AdapterRegistry,
        folder: str,
        *,
        failed_plugins: tuple[str, ...] = (),
        only: Callable[[Store], bool] = lambda store: True,
    ) -> "AsyncIterator[OpenedPlace]":
        """Open every store, and close them on leaving, the last first.

        Args:
            registry: The adapters.
            folder: An empty folder, in which each store that needs one gets one of its own.
            failed_plugins: Plugins that failed to load, for errors.
            only: Which stores to open.

        Raises:
            StagewrightError: Whatever opening a URL raises.
        """
        async with AsyncExitStack() as stack:
            sets: dict[str, AdapterSet] = {}
            for store in filter(only, self.stores):
                opening = registry.open(store.at(folder), AdapterOptions(), failed_plugins=failed_plugins)
                sets[store.url] = await stack.enter_async_context(opening)
            yield OpenedPlace(self, sets)


@dataclass(frozen=True, slots=True)
class OpenedPlace:
    """The ports of a place.

    Attributes:
        place: What was opened.
        sets: What each store serves, by its URL.
        spare: A persistence for tests of other ports where no store serves one.
    """

    place: Place
    sets: Mapping[str, AdapterSet]
    spare: Persistence | None = None

    def beside(self, port: str) -> AdapterSet:
        """What the store of a port serves; its persistence is the home's where it has none, or else the spare one."""
        own = self.sets[self.place.store_of(port).url]
        if own.persistence is not None:
            return own
        return replace(own, persistence=self.sets[self.place.home.url].persistence or self.spare)

    def is_apart(self, port: str) -> bool:
        """Whether a port is served by a store that has no persistence of its own, or isn't the home."""
        store = self.place.store_of(port)
        return store.url != self.place.home.url or self.sets[store.url].persistence is None

    @property
    def adapters(self) -> AdapterSet:
        """The ports as a kernel gets them."""
        apart = {port: getattr(self.sets[store.url], port) for port, store in self.place.apart.items()}
        return replace(self.sets[self.place.home.url], **apart)

    @property
    def served(self) -> tuple[str, ...]:
        """The ports with suites that are there."""
        adapters = self.adapters
        served = tuple(port for port in PORTS if port != ENGINE and getattr(adapters, port) is not None)
        # What is missing comes from memory.
        return (*served, ENGINE) if served else ()
