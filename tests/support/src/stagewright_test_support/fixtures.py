"""What a test asks for to get a database."""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from stagewright_test_support.servers import PostgresDatabases, PostgresServer, ServerError, SharedServers
from stagewright_test_support.services import give_up, need_backend

__all__ = ["SERVERS", "StartPostgres", "postgres_server", "postgres_url", "shared_address", "sqlite_url"]

SERVERS = pytest.StashKey[SharedServers]()


class StartPostgres(Protocol):
    """Starts a PostgreSQL for one test; the fixture stops it."""

    def __call__(
        self, *, durable: bool = False, settings: Mapping[str, str] | None = None
    ) -> PostgresServer: ...


def shared_address(config: pytest.Config, name: str) -> str:
    """Where the session's server is; without one the test is skipped, or fails where it is required."""
    need_backend(name)
    try:
        return config.stash[SERVERS].address(name)
    except ServerError as error:
        give_up(name, error.reason)


@pytest.fixture(scope="module")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database for one test module, `postgresql://postgres@127.0.0.1:PORT/NAME`."""
    databases = PostgresDatabases.at(shared_address(request.config, "postgres"))
    module = re.sub(r"[^a-z0-9]+", "_", request.path.stem.lower())
    name = f"t_{module[:40]}_{uuid.uuid4().hex[:8]}"
    yield databases.create(name)
    databases.drop(name)


@pytest.fixture
def postgres_server() -> Iterator[StartPostgres]:
    """Starts servers for one test, which may kill them; `durable=True` keeps what is committed."""
    need_backend("postgres")
    with ExitStack() as running:

        def start(*, durable: bool = False, settings: Mapping[str, str] | None = None) -> PostgresServer:
            try:
                return running.enter_context(PostgresServer.start(durable=durable, settings=settings))
            except ServerError as error:
                give_up("postgres", str(error))

        yield start


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a file for one test, `sqlite:///PATH`; nothing has made the file yet."""
    need_backend("sqlite")
    return f"sqlite:///{(tmp_path / 'stagewright.sqlite3').as_posix()}"
