"""Real servers that the tests bring along, each private to the process that started it."""

from stagewright_test_support.servers.certificate import LoopbackCertificate
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.mariadb import MariadbServer
from stagewright_test_support.servers.mariadb_databases import MariadbDatabases
from stagewright_test_support.servers.pgbouncer import PgbouncerServer
from stagewright_test_support.servers.postgres import PostgresServer
from stagewright_test_support.servers.postgres_databases import PostgresDatabases
from stagewright_test_support.servers.redis import RedisServer
from stagewright_test_support.servers.redis_cluster import RedisCluster
from stagewright_test_support.servers.redis_databases import RedisDatabases
from stagewright_test_support.servers.redis_programs import REDIS_KINDS
from stagewright_test_support.servers.redis_sentinel import RedisSentinel
from stagewright_test_support.servers.shared import SERVER_KINDS, ServerKind, SharedServers

__all__ = [
    "REDIS_KINDS",
    "SERVER_KINDS",
    "LoopbackCertificate",
    "MariadbDatabases",
    "MariadbServer",
    "PgbouncerServer",
    "PostgresDatabases",
    "PostgresServer",
    "RedisCluster",
    "RedisDatabases",
    "RedisSentinel",
    "RedisServer",
    "ServerError",
    "ServerKind",
    "SharedServers",
]
