"""A worker of the demo: `stagewright worker` as a process of its own."""

import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["WorkerProcess"]

# What the environment or the project says is for workers of theirs.
_SETTINGS = (
    "--concurrency",
    "8",
    "--create-schema",
    "--log-level",
    "info",
    "--stale-lease-threshold",
    "2s",
    "--job-heartbeat-interval",
    "0.5s",
    "--orchestration-interval",
    "1s",
)
_FAREWELL = 15.0


class WorkerProcess:
    """One process, its output in a file.

    Args:
        name: Its label.
        target: The workflow that it serves.
        url: The database.
        log: The file for what it writes.

    Attributes:
        name: Its label.
        pid: Its process id.
        log: The file with what it wrote.
    """

    def __init__(self, name: str, target: str, url: str, log: Path) -> None:
        self.name = name
        self.log = log
        command = [
            sys.executable,
            "-m",
            "stagewright.cli",
            "worker",
            target,
            "--url",
            url,
            "--worker-id",
            name,
        ]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, *_SETTINGS], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, or None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it at this instant, as the system does when it runs out of memory."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Ask it to end, wait until it has, and return its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(_FAREWELL)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def last_words(self, count: int = 15) -> str:
        """The last lines that it wrote."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])
