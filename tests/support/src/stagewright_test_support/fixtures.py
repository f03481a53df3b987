"""What a test asks for to get a database."""

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from stagewright_test_support.servers import (
    MariadbDatabases,
    MariadbServer,
    PgbouncerServer,
    PostgresDatabases,
    PostgresServer,
    ServerError,
    SharedServers,
)
from stagewright_test_support.services import give_up, need_backend
from stagewright_test_support.starting import starting

__all__ = [
    "SERVERS",
    "StartMariadb",
    "StartPostgres",
    "mariadb_server",
    "mariadb_url",
    "pgbouncer_url",
    "postgres_server",
    "postgres_url",
    "shared_address",
    "sqlite_url",
]

SERVERS = pytest.StashKey[SharedServers]()


class StartPostgres(Protocol):
    """Starts a PostgreSQL for one test; the fixture stops it."""

    def __call__(
        self, *, durable: bool = False, settings: Mapping[str, str] | None = None
    ) -> PostgresServer: ...


class StartPgbouncer(Protocol):
    """Starts a PgBouncer for one test; the fixture stops it."""

    def __call__(
        self, postgres_port: int, *, settings: Mapping[str, str] | None = None
    ) -> PgbouncerServer: ...


class StartMariadb(Protocol):
    """Starts a MariaDB for one test; the fixture stops it."""

    def __call__(
        self, *, durable: bool = False, settings: Mapping[str, str] | None = None
    ) -> MariadbServer: ...


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
    name = _name_for(request)
    yield databases.create(name)
    databases.drop(name)


@pytest.fixture(scope="module")
def mariadb_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database for one test module, `mariadb://root@127.0.0.1:PORT/NAME`."""
    databases = MariadbDatabases.at(shared_address(request.config, "mariadb"))
    name = _name_for(request)
    yield databases.create(name)
    databases.drop(name)


@pytest.fixture(scope="module")
def pgbouncer_url(postgres_url: str) -> Iterator[str]:
    """The URL of the database of `postgres_url` through a PgBouncer that lends three connections."""
    need_backend("pgbouncer")
    with starting(PgbouncerServer.start) as start:
        pooler = start(PostgresDatabases.at(postgres_url).port)
        yield pooler.url(postgres_url.rpartition("/")[2])


@pytest.fixture
def pgbouncer_server() -> Iterator[StartPgbouncer]:
    """Starts PgBouncers for one test, each before the PostgreSQL on a port."""
    need_backend("pgbouncer")
    with starting(PgbouncerServer.start) as start:
        yield start


@pytest.fixture
def postgres_server() -> Iterator[StartPostgres]:
    """Starts servers for one test, which may kill them; `durable=True` keeps what is committed."""
    need_backend("postgres")
    with starting(PostgresServer.start) as start:
        yield start


@pytest.fixture
def mariadb_server() -> Iterator[StartMariadb]:
    """Starts servers for one test, which may kill them; `durable=True` keeps what is committed."""
    need_backend("mariadb")
    with starting(MariadbServer.start) as start:
        yield start


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a file for one test, `sqlite:///PATH`; nothing has made the file yet."""
    need_backend("sqlite")
    return f"sqlite:///{(tmp_path / 'stagewright.sqlite3').as_posix()}"


def _name_for(request: pytest.FixtureRequest) -> str:
    module = re.sub(r"[^a-z0-9]+", "_", request.path.stem.lower())
    return f"t_{module[:40]}_{uuid.uuid4().hex[:8]}"
