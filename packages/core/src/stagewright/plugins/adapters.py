"""Which adapter opens which URL."""

import inspect
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple, TypeAlias

from stagewright.errors import (
    DefinitionError,
    InvalidAdapterError,
    InvalidSettingError,
    PluginConflictError,
    UnknownSchemeError,
)
from stagewright.ports import (
    AICallLogger,
    BlobStore,
    Clock,
    EventSink,
    JobTransport,
    Persistence,
    RunReader,
    StepLedger,
)
from stagewright.records import Fairness
from stagewright.shown_urls import redacted

__all__ = ["AdapterOpener", "AdapterOptions", "AdapterRegistry", "AdapterSet", "redacted", "scheme_of"]

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOptions:
    """What `open_kernel` was told that an adapter may need.

    Attributes:
        create_schema: Whether to make the schema when it is missing; None leaves it to the adapter: made for what is
            new and local, never on a server.
        clock: The clock that the application gave, or None.
        schema: The database's schema that tables are to be in, or None; only openers that take names get one.
        table_prefix: What the names of tables are to begin with, or None; the same.
        fairness: What the job transport is to be given, or None; `open_kernel` refuses one that doesn't have it then.
    """

    create_schema: bool | None = None
    clock: Clock | None = None
    fairness: Fairness | None = None
    schema: str | None = None
    table_prefix: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """Those of `schema` and `table_prefix` that were given."""
        given = {"schema": self.schema, "table_prefix": self.table_prefix}
        return {name: value for name, value in given.items() if value is not None}

    def without_names(self) -> "AdapterOptions":
        """The same, for a URL whose opener takes no names."""
        return replace(self, schema=None, table_prefix=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSet:
    """Every port that one URL serves, over one connection pool; a port that it can't serve stays None.

    `open_kernel` takes the job transport, the step ledger, the blob store and the event sink each from a URL of its own
    if it is given one. The persistence, and with it the run reader, the log of model calls and the clock, come from the
    URL where runs are kept. What a kernel can't do without is a persistence, a job transport and a blob store.

    Attributes:
        persistence: The state of runs.
        job_transport: The jobs.
        step_ledger: The durable steps.
        blob_store: Large values.
        run_reader: Reading for people; None where the persistence itself is a `RunReader`.
        event_sink: Where events go.
        ai_call_logger: The log of model calls.
        clock: The clock of the place where state is kept; used unless the application gives one.
    """

    persistence: Persistence | None = None
    job_transport: JobTransport | None = None
    step_ledger: StepLedger | None = None
    blob_store: BlobStore | None = None
    run_reader: RunReader | None = None
    event_sink: EventSink | None = None
    ai_call_logger: AICallLogger | None = None
    clock: Clock | None = None

    @property
    def served(self) -> tuple[str, ...]:
        """The names of the ports that are there."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is not None)


AdapterOpener: TypeAlias = Callable[[str, AdapterOptions], AbstractAsyncContextManager[AdapterSet]]
"""Opens a URL and closes, on leaving, what it opened."""


class _Claim(NamedTuple):
    owner: str
    opener: AdapterOpener
    takes_names: bool


class AdapterRegistry:
    """Which opener serves which URL scheme, and who says so."""

    def __init__(self, owner: str = "application") -> None:
        """Start without adapters.

        Args:
            owner: Who adds to this registry, for errors.
        """
        self.owner = owner
        self._claims: dict[str, list[_Claim]] = {}

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes that are known, in alphabetical order."""
        return tuple(sorted(self._claims))

    @property
    def conflicts(self) -> tuple[PluginConflictError, ...]:
        """One error for each scheme that is claimed more than once; opening a URL of such a scheme raises it."""
        return tuple(
            _conflict(scheme, claims) for scheme, claims in sorted(self._claims.items()) if len(claims) > 1
        )

    def add(self, scheme: str, opener: AdapterOpener, *, takes_names: bool = False) -> None:
        """Claim a scheme.

        An opener is `opener(url, options)`, gives an async context manager, and raises on entering:
        `InvalidSettingError` for a URL that it can't open, `TransientError` for what may work later. Entered, that
        yields an `AdapterSet`, and it closes on leaving what it opened. A URL may be open several times at once, in one
        process and in several.

        Args:
            scheme: In lower case, as `redis`. `sqlite` also serves `sqlite+aiosqlite`, unless that is claimed too.
            opener: Opens a URL of this scheme, given as the application wrote it.
            takes_names: Whether it heeds `schema` and `table_prefix` of its options, or refuses them itself; for any
                other opener it is an error to give one of them.

        Raises:
            DefinitionError: If it is no scheme, or the opener can't be called.
            PluginConflictError: If this registry's owner claimed it before.
        """
        if not _SCHEME.fullmatch(scheme):
            raise DefinitionError(
                f"scheme {scheme!r} of {self.owner}",
                ("a scheme is lower-case letters, digits, '+', '-' and '.', without '://'",),
            )
        if not callable(opener):
            what = f"the opener for {scheme!r} of {self.owner}"
            raise DefinitionError(what, (f"it is of type {type(opener).__name__} and can't be called",))
        claims = self._claims.setdefault(scheme, [])
        if any(claim.owner == self.owner for claim in claims):
            raise PluginConflictError(f"scheme {scheme!r}", (self.owner, self.owner))
        claims.append(_Claim(self.owner, opener, takes_names))

    def include(self, other: "AdapterRegistry") -> None:
        """Take over the claims of another registry; those that meet a claim here are kept as conflicts."""
        for scheme, claims in other._claims.items():
            self._claims.setdefault(scheme, []).extend(claims)

    def opener_of(self, url: str, *, failed_plugins: tuple[str, ...] = ()) -> AdapterOpener:
        """The opener for a URL: of its very scheme, else of the part of the scheme before `+`.

        Args:
            url: The URL as the application wrote it.
            failed_plugins: Plugins that failed to load, for the error.

        Raises:
            UnknownSchemeError: If nobody claims the scheme, or the text is no URL.
            PluginConflictError: If two plugins do.
        """
        return self._claim_of(url, failed_plugins).opener

    def takes_names(self, url: str) -> bool:
        """Whether the opener for a URL heeds `schema` and `table_prefix`.

        Raises:
            UnknownSchemeError, PluginConflictError: As `opener_of` does.
        """
        return self._claim_of(url, ()).takes_names

    @asynccontextmanager
    async def open(
        self, url: str, options: AdapterOptions, *, failed_plugins: tuple[str, ...] = ()
    ) -> AsyncIterator[AdapterSet]:
        """Open a URL with the opener for it, and close it on leaving.

        Raises:
            UnknownSchemeError, PluginConflictError: As `opener_of` does.
            InvalidAdapterError: If what was claimed for the scheme is no opener.
            InvalidSettingError: If it is given a `schema` or a `table_prefix`, and takes none.
        """
        owner, opener, takes_names = self._claim_of(url, failed_plugins)
        if not takes_names:
            for name, value in options.names.items():
                problem = f"names tables in a database, and {redacted(url)} has none; leave it out"
                raise InvalidSettingError(name, value, problem)
        async with _entered(opener, url, options, owner) as served:
            if not isinstance(served, AdapterSet):
                raise InvalidAdapterError(
                    owner, scheme_of(url), f"it gave {_kind(served)}, and an AdapterSet is needed"
                )
            yield served

    def _claim_of(self, url: str, failed_plugins: tuple[str, ...]) -> _Claim:
        exact = scheme_of(url)
        for scheme in (exact, exact.partition("+")[0]):
            claims = self._claims.get(scheme, [])
            if len(claims) > 1:
                raise _conflict(scheme, claims)
            if claims:
                return claims[0]
        raise UnknownSchemeError(redacted(url), self.schemes, failed_plugins)


def scheme_of(url: str) -> str:
    """The scheme of a URL in lower case; empty when the text has none."""
    match = _URL.match(url)
    return "" if match is None else match[1].lower()


def _entered(
    opener: AdapterOpener, url: str, options: AdapterOptions, owner: str
) -> AbstractAsyncContextManager[object]:
    """What the opener gives, once it is sure that it can be entered."""
    try:
        inspect.signature(opener).bind(url, options)
    except TypeError as error:
        problem = f"its opener takes other arguments than a URL and AdapterOptions: {error}"
        raise InvalidAdapterError(owner, scheme_of(url), problem) from None
    except ValueError:  # Written in C, where a signature may be missing.
        pass
    opened: object = opener(url, options)
    if isinstance(opened, AbstractAsyncContextManager):
        return opened
    if inspect.iscoroutine(opened):
        opened.close()
    problem = (
        f"its opener returned {_kind(opened)}, and an async context manager is needed; "
        "decorate it with @asynccontextmanager and let it yield an AdapterSet"
    )
    raise InvalidAdapterError(owner, scheme_of(url), problem)


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _conflict(scheme: str, claims: list[_Claim]) -> PluginConflictError:
    return PluginConflictError(f"scheme {scheme!r}", (claims[0].owner, claims[1].owner))
