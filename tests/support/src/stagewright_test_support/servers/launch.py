"""Starts a server so that it ends together with this process."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stagewright_test_support.servers import exec_with_parent
from stagewright_test_support.servers.account import Account

__all__ = ["free_port", "last_lines", "launch"]

# The signal follows the thread that started the server, so that thread lives as long as the process.
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-launcher")
# Below the ports that systems give to outgoing connections: the port of a killed server stays free for it.
_PORTS = range(15_000, 32_000)


def launch(
    command: Sequence[str],
    *,
    log: Path,
    account: Account | None,
    farewell: signal.Signals,
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Starts the program, in a session of its own and in the root folder; its output is added to `log`.

    Args:
        command: The program's absolute path and its arguments.
        log: The file for what it writes.
        account: The account it runs as; `None` keeps this process's.
        farewell: What it is sent when this process ends in whatever way, on Linux.
        environment: All of its environment.
    """
    uid, gid = account or (-1, -1)
    facts = [str(number) for number in (os.getpid(), uid, gid, int(farewell))]
    whole = [sys.executable, "-I", "-S", exec_with_parent.__file__, *facts, *command]

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                whole,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=dict(environment),
                start_new_session=True,
            )

    return _THREAD.submit(start).result()


def free_port() -> int:
    """A loopback port that nobody listens on now; somebody may before its use."""
    choose = random.SystemRandom()
    while True:
        port = choose.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def last_lines(log: Path, count: int = 20, *, since: int = 0) -> str:
    """The last lines of a log after so many bytes of it; empty where there is none."""
    if not log.is_file():
        return ""
    lines = log.read_bytes()[since:].decode(errors="replace").splitlines()
    return "\n".join(lines[-count:])
