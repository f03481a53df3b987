"""The composition root: ports from URLs, and a kernel over them."""

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from typing import Final, TypedDict, TypeVar

from stagewright.duration import Duration
from stagewright.errors import InvalidSettingError, PortNotServedError
from stagewright.hosting.memory_adapters import installed_adapters
from stagewright.hosting.registries import Workflows, registry_of
from stagewright.kernel import Kernel, Middleware
from stagewright.plugins import AdapterOptions, AdapterSet, PluginRunner, PluginSet, discover_plugins
from stagewright.plugins.adapters import redacted
from stagewright.ports import (
    ActivityExecutor,
    AICallLogger,
    BlobStore,
    Clock,
    EventSink,
    GroupsJobs,
    IdSource,
    JobTransport,
    KernelServices,
    Persistence,
    RandomSource,
    RunReader,
    StepLedger,
)
from stagewright.records import Fairness
from stagewright.system import SystemClock

__all__ = ["DEFAULT_URL", "open_kernel"]

P = TypeVar("P")

DEFAULT_URL: Final = "sqlite+aiosqlite:///stagewright.db"

_PORTS: Final = {
    "url": ("Persistence", "transaction"),
    "job_transport": ("JobTransport", "enqueue_parallel"),
    "step_ledger": ("StepLedger", "compare_and_set"),
    "blob_store": ("BlobStore", "open_write"),
    "event_sink": ("EventSink", "emit"),
}
"""By argument of `open_kernel`: the port, and a method by which something else is told from it."""

_log: Final = logging.getLogger("stagewright.plugins")


@asynccontextmanager
async def open_kernel(  # noqa: D417 - the kernel's own arguments are described there
    workflows: Workflows,
    url: str | Persistence = DEFAULT_URL,
    *,
    job_transport: str | JobTransport | None = None,
    blob_store: str | BlobStore | None = None,
    step_ledger: str | StepLedger | None = None,
    event_sink: str | EventSink | None = None,
    clock: Clock | None = None,
    services: KernelServices | None = None,
    executor: ActivityExecutor | None = None,
    ids: IdSource | None = None,
    random: RandomSource | None = None,
    middleware: Sequence[Middleware] = (),
    spill_threshold_bytes: float = 65_536,
    idempotency_stale_after: Duration | None = "10m",
    create_schema: bool | None = None,
    schema: str | None = None,
    table_prefix: str | None = None,
    fairness: Fairness | None = None,
    plugins: PluginSet | None = None,
) -> AsyncIterator[Kernel]:
    """Open every port from its URL, yield a kernel over them, and close what was opened, the last first.

    Args:
        workflows: A workflow, several of them, or a registry.
        url: Where runs are kept. `memory://` is new and empty each time; the default needs an adapter for sqlite URLs.
        job_transport, blob_store, step_ledger: Each a URL, opened once, or the port, not closed; by default `url`.
        event_sink, clock: By default all installed event plugins, and the adapter's clock or else the machine's.
        services: What bodies get beside the ports; `KernelServices()` brings the log of model calls that `url` has.
        executor, ids, random, middleware, spill_threshold_bytes, idempotency_stale_after: As `Kernel` takes them;
            installed plugins' middleware is outside.
        create_schema: Whether a missing schema is made; None: for what is new and local, never on a server.
        schema, table_prefix: Where the database of a URL has its tables, and what their names begin with.
        fairness: A cap on the RUNNING jobs of one group, the same in every process; none by default.
        plugins: What is installed; None finds out, an empty `PluginSet()` leaves all of it aside.

    Raises:
        InvalidSettingError, DefinitionError: If an argument is none of what it may be, or `fairness` isn't kept.
        UnknownSchemeError, PluginConflictError, InvalidAdapterError, PortNotServedError: If a URL can't serve its port.
    """
    given = _GivenPorts(url, job_transport, step_ledger, blob_store, event_sink)
    registry = registry_of(workflows, subject="open_kernel")
    options = AdapterOptions(
        create_schema=create_schema, clock=clock, fairness=fairness, schema=schema, table_prefix=table_prefix
    )
    async with _opened(given, plugins, options) as ports:
        kernel = Kernel(
            **ports.arguments(clock),
            registry=registry,
            services=_with_logger(services, ports.home.ai_call_logger),
            executor=executor,
            ids=ids,
            random=random,
            middleware=(*ports.middleware, *middleware),
            spill_threshold_bytes=spill_threshold_bytes,
            idempotency_stale_after=idempotency_stale_after,
        )
        with closing(kernel):
            yield kernel


@dataclass(frozen=True, slots=True)
class _GivenPorts:
    url: str | Persistence
    job_transport: str | JobTransport | None
    step_ledger: str | StepLedger | None
    blob_store: str | BlobStore | None
    event_sink: str | EventSink | None

    def __post_init__(self) -> None:
        for name, (port, method) in _PORTS.items():
            given: object = getattr(self, name)
            if isinstance(given, str) or (given is None and name != "url"):
                continue
            if not callable(getattr(given, method, None)) or inspect.isclass(given):
                shown = redacted(given.decode(errors="replace")) if isinstance(given, bytes) else given
                problem = f"must be a URL, such as 'memory://', or an object with the methods of {port}"
                raise InvalidSettingError(name, shown, problem)


class _KernelPorts(TypedDict):
    persistence: Persistence
    job_transport: JobTransport
    step_ledger: StepLedger | None
    blob_store: BlobStore
    event_sink: EventSink
    run_reader: RunReader | None
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedPorts:
    persistence: Persistence
    job_transport: JobTransport
    step_ledger: StepLedger | None
    blob_store: BlobStore
    event_sink: EventSink
    middleware: tuple[Middleware, ...]
    home: AdapterSet

    def arguments(self, clock: Clock | None) -> _KernelPorts:
        """The kernel's ports; the clock is the one that was given, or the home's, or else the machine's."""
        return {
            "persistence": self.persistence,
            "job_transport": self.job_transport,
            "step_ledger": self.step_ledger,
            "blob_store": self.blob_store,
            "event_sink": self.event_sink,
            "run_reader": self.home.run_reader,
            "clock": clock or self.home.clock or SystemClock(),
        }


@asynccontextmanager
async def _opened(
    given: _GivenPorts, plugins: PluginSet | None, options: AdapterOptions
) -> AsyncIterator[_OpenedPorts]:
    _check_fairness(options.fairness)
    installed = discover_plugins() if plugins is None else plugins
    async with AsyncExitStack() as stack:
        ports = _Ports(stack, installed, options, given.url)
        opened = _OpenedPorts(
            persistence=await ports.open("persistence", given.url, lambda served: served.persistence),
            job_transport=await ports.open(
                "job_transport", given.job_transport, lambda served: served.job_transport
            ),
            step_ledger=await ports.open_optional(
                "step_ledger", given.step_ledger, lambda served: served.step_ledger
            ),
            blob_store=await ports.open("blob_store", given.blob_store, lambda served: served.blob_store),
            event_sink=(
                PluginRunner(installed.event_plugins())
                if given.event_sink is None
                else await ports.open("event_sink", given.event_sink, lambda served: served.event_sink)
            ),
            middleware=installed.middleware(),
            home=ports.home,
        )
        _require_fairness(opened.job_transport, options.fairness)
        for plugin in installed.failed:
            _log.warning("plugin %s is not used: %s", plugin.id, plugin.problem)
        yield opened


class _Ports:
    """Opens URLs, each once, and takes ports from what they serve."""

    def __init__(
        self, stack: AsyncExitStack, installed: PluginSet, options: AdapterOptions, home: str | Persistence
    ) -> None:
        if not isinstance(home, str):
            for name, value in options.names.items():
                problem = "is for a database that is opened by its URL; give it to what made the persistence instead"
                raise InvalidSettingError(name, value, problem)
        self._stack = stack
        self._options = options
        self._home = home
        self._opened: dict[str, AdapterSet] = {}
        self._registry = installed_adapters(installed)
        self._failed = tuple(plugin.id for plugin in installed.failed)

    @property
    def home(self) -> AdapterSet:
        """What the persistence's own URL serves; nothing but itself where it was given as an object."""
        if isinstance(self._home, str):
            return self._opened[self._home]
        return AdapterSet(persistence=self._home)

    async def open(self, port: str, given: str | P | None, take: Callable[[AdapterSet], P | None]) -> P:
        """The port: as it was given, or from the URL that was given, or from the persistence's.

        Raises:
            PortNotServedError: If the URL doesn't serve it.
        """
        found = await self.open_optional(port, given, take)
        if found is None:
            shown = redacted(self._home) if isinstance(self._home, str) else type(self._home).__name__
            raise PortNotServedError(port, shown, self.home.served)
        return found

    async def open_optional(
        self, port: str, given: str | P | None, take: Callable[[AdapterSet], P | None]
    ) -> P | None:
        """Like `open`; None if the port wasn't given and the persistence's URL doesn't serve it."""
        if given is None:
            return take(self.home)
        if not isinstance(given, str):
            return given
        served = await self._served_by(given)
        found = take(served)
        if found is None:
            raise PortNotServedError(port, redacted(given), served.served)
        return found

    async def _served_by(self, url: str) -> AdapterSet:
        if url not in self._opened:
            options = self._options
            if url != self._home and options.names and not self._registry.takes_names(url):
                options = options.without_names()
            opening = self._registry.open(url, options, failed_plugins=self._failed)
            self._opened[url] = await self._stack.enter_async_context(opening)
        return self._opened[url]


def _check_fairness(given: object) -> None:
    if given is not None and not isinstance(given, Fairness):
        problem = "must be a Fairness of stagewright.records, or None for no cap"
        raise InvalidSettingError("fairness", given, problem)


def _require_fairness(transport: JobTransport, wanted: Fairness | None) -> None:
    kept = transport.fairness if isinstance(transport, GroupsJobs) else None
    if wanted is not None and kept != wanted:
        name = type(transport).__name__
        problem = f"isn't kept by the job transport, {name}; give it to the transport itself, or leave it out"
        raise InvalidSettingError("fairness", wanted, problem)


def _with_logger(services: KernelServices | None, logger: AICallLogger | None) -> KernelServices | None:
    """The services with the database's log; without any, nobody makes model calls, and no run reads it as it ends."""
    if services is None or services.ai_logger is not None or logger is None:
        return services
    return replace(services, ai_logger=logger)
