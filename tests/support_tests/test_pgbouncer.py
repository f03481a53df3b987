import signal
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import psycopg
import pytest

from stagewright_test_support import need_backend
from stagewright_test_support.fixtures import StartPgbouncer
from stagewright_test_support.servers import PgbouncerServer, PostgresServer, ServerError, pgbouncer
from stagewright_test_support.servers.account import unprivileged_account
from stagewright_test_support.servers.process_table import wait_until_gone

OWNER = """
import pathlib, sys
from stagewright_test_support.servers import PgbouncerServer
pooler = PgbouncerServer.start(1, root=pathlib.Path(sys.argv[1]))
print((pooler.log.parent / "server.pid").read_text(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _needs_pgbouncer() -> None:
    need_backend("pgbouncer")


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, prepare_threshold=None)


def backend(connection: psycopg.Connection) -> object:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return row[0]


def test_each_transaction_may_have_another_of_three_connections(
    server: PostgresServer, pgbouncer_server: StartPgbouncer
) -> None:
    pooler = pgbouncer_server(server.port)
    with connect(pooler.url()) as one, connect(pooler.url()) as two, one.transaction():
        held = {backend(one) for _ in range(5)}
        lent = {backend(two) for _ in range(20)}
    assert len(held) == 1
    assert 1 <= len(lent) <= 2
    assert not held & lent


def test_it_leads_to_every_database(server: PostgresServer, pgbouncer_server: StartPgbouncer) -> None:
    server.create_database("behind_a_pooler")
    pooler = pgbouncer_server(server.port, settings={"pool_mode": "session"})
    with connect(pooler.url("behind_a_pooler")) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("behind_a_pooler",)
    server.drop_database("behind_a_pooler")


def test_what_it_refuses_is_told_and_leaves_nothing(open_root: Path) -> None:
    with pytest.raises(ServerError, match="pool_mode") as caught:
        PgbouncerServer.start(1, settings={"pool_mode": "forever"}, root=open_root)
    assert caught.value.server == "pgbouncer"
    assert list(open_root.iterdir()) == []


def test_it_runs_as_a_plain_user_and_leaves_nothing(open_root: Path) -> None:
    with PgbouncerServer.start(1, root=open_root) as pooler:
        pid = int((pooler.log.parent / "server.pid").read_text(encoding="utf-8"))
        account = unprivileged_account()
        if account is not None:
            assert Path(f"/proc/{pid}").stat().st_uid == account.uid
        assert pooler.is_running
    assert not pooler.is_running
    pooler.stop()
    assert list(open_root.iterdir()) == []


def test_it_starts_again_at_the_same_place(open_root: Path) -> None:
    with PgbouncerServer.start(1, root=open_root) as pooler:
        place = pooler.port
        first = int((pooler.log.parent / "server.pid").read_text(encoding="utf-8"))
        pooler.restart()
        assert (pooler.port, pooler.is_running) == (place, True)
        assert int((pooler.log.parent / "server.pid").read_text(encoding="utf-8")) != first
        wait_until_gone([first])
    assert list(open_root.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_it_ends_with_its_owner(start_python: Callable[..., Popen[str]], open_root: Path) -> None:
    owner = start_python(OWNER, open_root)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until_gone([pid])


def test_without_the_program_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgbouncer, "_program", lambda: None)
    with pytest.raises(ServerError, match=r"no pgbouncer here; on Debian: apt-get install"):
        PgbouncerServer.start(1)
