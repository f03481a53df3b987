import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from stagewright_test_support import need_backend
from stagewright_test_support.servers import process_table
from stagewright_test_support.servers.account import Account, unprivileged_account
from stagewright_test_support.servers.launch import free_port
from stagewright_test_support.servers.server_folder import ServerFolder, sweep

StartPython = Callable[..., subprocess.Popen[str]]

OWNER = """
import pathlib, sys
from stagewright_test_support.servers import PostgresServer
server = PostgresServer.start(root=pathlib.Path(sys.argv[1]))
pid = (server.log.parent / "server.pid").read_text()
print(server.port, pid, flush=True)
sys.stdin.read()
server.stop()
"""
PROBE = "import sys, pytest, stagewright_test_support.servers; sys.exit(sys.version_info < (3, 11))"


@pytest.fixture(autouse=True)
def _needs_postgres() -> None:
    need_backend("postgres")


def port_and_pid(owner: subprocess.Popen[str]) -> tuple[int, int]:
    assert owner.stdout is not None
    port, pid = owner.stdout.readline().split()
    return int(port), int(pid)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until_closed(port: int) -> None:
    deadline = time.monotonic() + 10
    while is_open(port):
        assert time.monotonic() < deadline, f"{port} is still open"
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_it_ends_with_its_owner_and_a_sweep_removes_the_rest(
    start_python: StartPython, open_root: Path
) -> None:
    owner = start_python(OWNER, open_root)
    port, pid = port_and_pid(owner)
    assert is_open(port)
    owner.kill()
    owner.wait()
    wait_until_closed(port)
    process_table.wait_until_gone([pid])
    left = list(open_root.iterdir())
    assert len(left) == 1
    assert sweep(open_root) == left
    assert list(open_root.iterdir()) == []


def test_a_sweep_ends_a_server_that_outlived_its_owner(start_python: StartPython, open_root: Path) -> None:
    owner = start_python(OWNER, open_root)
    port, pid = port_and_pid(owner)
    # Stopped, it can't follow the signal that it gets at its owner's end.
    os.kill(pid, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    assert process_table.is_alive(pid)
    assert len(sweep(open_root)) == 1
    assert not process_table.is_alive(pid)
    wait_until_closed(port)
    assert list(open_root.iterdir()) == []


def test_a_sweep_leaves_the_living_and_the_strangers_alone(open_root: Path) -> None:
    folder = ServerFolder.create("made-up", None, open_root)
    folder.remember(os.getpid())
    (open_root / "stagewright-server-without-lock").mkdir()
    assert sweep(open_root) == []
    assert folder.path.is_dir()
    folder.remove()
    folder.remove()
    assert [path.name for path in open_root.iterdir()] == ["stagewright-server-without-lock"]


def test_a_sweep_spares_a_process_that_got_the_number_later(
    start_python: StartPython, open_root: Path
) -> None:
    stranger = start_python("input()")
    folder = open_root / "stagewright-server-made-up"
    folder.mkdir()
    (folder / "owner.lock").touch()
    (folder / "server.pid").write_text(str(stranger.pid), encoding="utf-8")
    assert sweep(open_root) == [folder]
    assert stranger.poll() is None


def test_a_plain_user_starts_one(start_python: StartPython, open_root: Path) -> None:
    account = unprivileged_account()
    if account is None:
        pytest.skip("all other tests run as a plain user already")
    owner = start_python(OWNER, open_root, python=python_for(start_python, account), uid=account.uid)
    port, pid = port_and_pid(owner)
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    [folder] = open_root.iterdir()
    assert folder.stat().st_uid == account.uid
    assert owner.communicate("")[0] == ""
    assert owner.returncode == 0
    assert not process_table.is_alive(pid)
    assert list(open_root.iterdir()) == []


def python_for(start_python: StartPython, account: Account) -> str:
    for python in dict.fromkeys([sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]):
        try:
            probe = start_python(PROBE, python=python, uid=account.uid)
        except OSError:
            continue
        if probe.wait() == 0:
            return python
    pytest.skip("nobody can run a Python with these packages here")


def test_a_thread_that_ends_does_not_take_its_server_along(
    start_python: StartPython, open_root: Path
) -> None:
    code = OWNER.replace(
        "server = PostgresServer.start(root=pathlib.Path(sys.argv[1]))",
        "import concurrent.futures as c\n"
        "with c.ThreadPoolExecutor() as pool:\n"
        "    server = pool.submit(PostgresServer.start, root=pathlib.Path(sys.argv[1])).result()",
    )
    owner = start_python(code, open_root)
    port, pid = port_and_pid(owner)
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres") as connection:
        assert connection.execute("SELECT pg_sleep(0.05)").fetchone() is not None
    assert process_table.is_alive(pid)
    owner.communicate("")


def test_processes_are_seen_the_same_with_and_without_proc(
    start_python: StartPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start_python("print('up', flush=True); input()", "a word")
    assert child.stdout is not None
    child.stdout.readline()
    for with_proc in (True, False):
        if not with_proc:
            monkeypatch.setattr(process_table, "_has_proc", lambda: False)
        assert process_table.is_alive(child.pid)
        assert "a word" in process_table.command_line(child.pid)
        assert child.pid in process_table.descendants(os.getpid())
    process_table.kill_family(child.pid)
    assert not process_table.is_alive(child.pid)
    child.wait()
    assert process_table.command_line(child.pid) == ""


def test_a_process_that_ignores_the_farewell_is_killed(start_python: StartPython) -> None:
    code = "import signal; signal.signal(signal.SIGQUIT, signal.SIG_IGN); print(1, flush=True); input()"
    child = start_python(code)
    assert child.stdout is not None
    child.stdout.readline()
    process_table.end_family(child.pid, signal.SIGQUIT, 0.02)
    assert child.wait() == -signal.SIGKILL


def test_a_process_that_stays_is_told(start_python: StartPython) -> None:
    child = start_python("input()")
    with pytest.raises(TimeoutError, match=str(child.pid)):
        process_table.wait_until_gone([child.pid], 0.02)


def test_a_free_port_is_none_that_connections_go_out_from() -> None:
    # From 32,768 on Linux takes ports for connections that go out, and one of those could have it before its use.
    assert all(15_000 <= free_port() < 32_000 for _ in range(50))
