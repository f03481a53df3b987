"""Real servers that the tests bring along, each private to the process that started it."""

from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.mariadb import MariadbServer
from stagewright_test_support.servers.mariadb_databases import MariadbDatabases
from stagewright_test_support.servers.pgbouncer import PgbouncerServer
from stagewright_test_support.servers.postgres import PostgresServer
from stagewright_test_support.servers.postgres_databases import PostgresDatabases
from stagewright_test_support.servers.shared import SERVER_KINDS, ServerKind, SharedServers

__all__ = [
    "SERVER_KINDS",
    "MariadbDatabases",
    "MariadbServer",
    "PgbouncerServer",
    "PostgresDatabases",
    "PostgresServer",
    "ServerError",
    "ServerKind",
    "SharedServers",
]
