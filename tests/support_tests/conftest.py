import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stagewright_test_support
from stagewright_test_support import need_backend
from stagewright_test_support.servers import PostgresServer

IMPORTABLE = [
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    str(Path(stagewright_test_support.__file__).parents[1]),
    *filter(None, [os.environ.get("PYTHONPATH")]),
]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for the tests of one module that leave it as it was."""
    need_backend("postgres")
    with PostgresServer.start() as running:
        yield running


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A folder with a space in its path that every account can pass through and write to."""
    root = Path(tempfile.mkdtemp(prefix="stagewright tests ", dir="/tmp"))
    root.chmod(0o777)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def start_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program with pipes to it; it is killed when the test leaves it running."""
    started: list[subprocess.Popen[str]] = []

    def start(
        code: str, *arguments: object, python: str = sys.executable, uid: int | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [python, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(IMPORTABLE)},
            user=uid,
            extra_groups=None if uid is None else [],
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()
