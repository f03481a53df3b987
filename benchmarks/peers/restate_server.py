"""A Restate server on loopback ports, with its defaults and a data folder of its own.

Its program comes by npm, into the folder `npm` of the environment, or is found on the path.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stagewright_test_support.servers.launch import free_port, last_lines, launch

__all__ = ["RestateServer", "restate_version", "serving_restate", "wait_for_answer"]

_PATIENCE = 60
_LOOK_AGAIN = 0.05
# It would ask for its latest release; a proxy that isn't there keeps it from that.
_NOWHERE = "http://127.0.0.1:9"
_KEPT_TO_ITSELF = {
    "DO_NOT_TRACK": "1",
    **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), _NOWHERE),
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}
_SETTINGS = """
node-name = "bench"
base-dir = "{data}"
listen-mode = "tcp"
bind-ip = "127.0.0.1"
bind-port = {fabric}
advertised-host = "127.0.0.1"
disable-telemetry = true
log-filter = "error"

[ingress]
bind-port = {ingress}

[admin]
bind-port = {admin}
"""


@dataclass(frozen=True, slots=True)
class RestateServer:
    """A server that runs.

    Attributes:
        process: Its number.
        ingress: The port on which handlers are called.
        admin: The port on which deployments are registered.
    """

    process: int
    ingress: int
    admin: int

    def register(self, port: int) -> None:
        """Tell it of the handlers that are served on a port; returns when it has asked for them."""
        body = json.dumps({"uri": f"http://127.0.0.1:{port}"}).encode()
        address = f"http://127.0.0.1:{self.admin}/deployments"
        _ask(urllib.request.Request(address, body, {"content-type": "application/json"}))


@contextmanager
def serving_restate(folder: Path) -> Iterator[RestateServer]:
    """A server that ends with the block, or with this process, and leaves no data behind.

    Raises:
        FileNotFoundError: If its program isn't there.
        RuntimeError: If it doesn't start; the last line of its log is told.
    """
    program = _program()
    if program is None:
        raise FileNotFoundError("restate-server isn't installed")
    data, log, settings = folder / "restate", folder / "restate.log", folder / "restate.toml"
    ports = {"ingress": free_port(), "admin": free_port(), "fabric": free_port()}
    settings.write_text(_SETTINGS.format(data=data, **ports), encoding="utf-8")
    process = launch(
        [str(program), "--no-logo", "--config-file", str(settings)],
        log=log,
        account=None,
        farewell=signal.SIGKILL,
        environment=dict(os.environ) | _KEPT_TO_ITSELF,
    )
    try:
        for port, path in ((ports["admin"], "health"), (ports["ingress"], "restate/health")):
            address = urllib.request.Request(f"http://127.0.0.1:{port}/{path}")
            wait_for_answer(partial(_ask, address), process, log)
        yield RestateServer(process.pid, ports["ingress"], ports["admin"])
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(data, ignore_errors=True)


def restate_version() -> str | None:
    """The version of the program; None without one."""
    program = _program()
    if program is None:
        return None
    return subprocess.check_output([program, "--version"], text=True).split()[1]


def _program() -> Path | None:
    brought = Path(sys.prefix).glob("npm/node_modules/@restatedev/restate-server-*/bin/restate-server")
    on_the_path = shutil.which("restate-server")
    return next(brought, None if on_the_path is None else Path(on_the_path))


def wait_for_answer(ask: Callable[[], object], process: subprocess.Popen[bytes], log: Path) -> None:
    """Ask a process that begins until it answers.

    Args:
        ask: Raises OSError as long as it doesn't.
        process: It.
        log: What it writes to.

    Raises:
        RuntimeError: If it ended, or didn't answer within a minute; the last line of its log is told.
    """
    ends = time.monotonic() + _PATIENCE
    while True:
        try:
            ask()
        except OSError:
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"it didn't start: {last_lines(log, 1)}") from None
            time.sleep(_LOOK_AGAIN)
        else:
            return


def _ask(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        answer.read()
