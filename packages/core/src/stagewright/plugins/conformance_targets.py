"""What the conformance suite can be pointed at, as a plugin says it."""

from dataclasses import dataclass

from stagewright.errors import DefinitionError

__all__ = ["ConformanceTarget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceTarget:
    """A URL that a plugin's adapters open, and what has to be there first.

    Attributes:
        name: What it is called in tables, such as `PostgreSQL, asyncpg`.
        url: The URL, with `{folder}` in the place of a folder of its own, or with `{server}` in the place of what
            follows `://` in the URL of a database that is empty, such as `me@localhost:5432/empty`.
        server: The kind of server that has to run, such as `postgresql`; None if it needs none.

    Raises:
        DefinitionError: If the URL has a `{server}` and no kind of server is named, or the other way round.
    """

    name: str
    url: str
    server: str | None = None

    def __post_init__(self) -> None:
        if ("{server}" in self.url) != (self.server is not None):
            problem = f"the URL {self.url!r} and the server {self.server!r} don't go together"
            raise DefinitionError(f"conformance target {self.name!r}", (problem,))

    def at(self, *, folder: str = "", server: str = "") -> str:
        """The URL to open.

        Args:
            folder: An empty folder, for a target that needs no server.
            server: What follows `://` in the URL of an empty database, for one that does.
        """
        return self.url.replace("{folder}", folder).replace("{server}", server)
