"""Real servers that the tests bring along, each private to the process that started it."""

from stagewright_test_support.servers.certificate import LoopbackCertificate
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.fake_gcs import FakeGcsServer
from stagewright_test_support.servers.http_server import HttpServer
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
from stagewright_test_support.servers.s3_emulators import MinistackServer, MotoServer
from stagewright_test_support.servers.shared import SERVER_KINDS, ServerKind, SharedServers

__all__ = [
    "REDIS_KINDS",
    "SERVER_KINDS",
    "FakeGcsServer",
    "HttpServer",
    "LoopbackCertificate",
    "MariadbDatabases",
    "MariadbServer",
    "MinistackServer",
    "MotoServer",
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
