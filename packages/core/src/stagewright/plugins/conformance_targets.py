"""What the conformance suite can be pointed at, as a plugin says it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stagewright.errors import DefinitionError

__all__ = ["ConformanceTarget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceTarget:
    """A URL that a plugin's adapters open, what has to be there first, and what the suite needs to know of it.

    Attributes:
        name: What it is called in tables, such as `PostgreSQL, asyncpg`.
        url: The URL, with `{folder}` in the place of a folder of its own, or with `{server}` in the place of what
            follows `://` in the URL of a database that is empty, such as `me@localhost:5432/empty`.
        server: The kind of server that has to run, such as `postgresql`; None if it needs none.
        schemes: Further schemes of URLs that open what this target's own scheme opens.
        lacks: The capabilities that the adapters lack, as the suite's `Capabilities` names them.
        holds: Says in a few words what is at a URL already, such as `12 runs`; None for nothing. It changes nothing
            there. Where it isn't given, the suite asks the ports for runs, jobs and blobs.
        empty: Empties what is at a URL, and makes first what adapters need to open it. Without it the suite runs
            only at URLs that are new for each test.
        opens_anew: Whether each opening of the URL is an empty store of its own, as that of `memory://` is.

    Raises:
        DefinitionError: If the URL has a `{server}` and no kind of server is named, or the other way round; or if
            `schemes` or `lacks` is no tuple of names.
    """

    name: str
    url: str
    server: str | None = None
    schemes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    holds: Callable[[str], Awaitable[str | None]] | None = None
    empty: Callable[[str], Awaitable[None]] | None = None
    opens_anew: bool = False

    def __post_init__(self) -> None:
        if ("{server}" in self.url) != (self.server is not None):
            problem = f"the URL {self.url!r} and the server {self.server!r} don't go together"
            raise DefinitionError(f"conformance target {self.name!r}", (problem,))
        for field in ("schemes", "lacks"):
            given: object = getattr(self, field)
            if not isinstance(given, tuple) or not all(isinstance(one, str) for one in given):
                problem = f"{field} is {given!r}; it is a tuple of names"
                raise DefinitionError(f"conformance target {self.name!r}", (problem,))

    def at(self, *, folder: str = "", server: str = "") -> str:
        """The URL to open.

        Args:
            folder: An empty folder, for a target that needs no server.
            server: What follows `://` in the URL of an empty database, for one that does.
        """
        return self.url.replace("{folder}", folder).replace("{server}", server)
