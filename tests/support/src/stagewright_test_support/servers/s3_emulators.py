"""Two emulators of S3, each of which shows what the other doesn't."""

import importlib.util
import sys

from stagewright_test_support.servers.http_server import HttpServer

__all__ = ["MinistackServer", "MotoServer"]

# The folder is an argument so that a later sweep knows the process by it; neither reads it.
_RUN_MINISTACK = "import sys; from ministack.app import main; del sys.argv[1:]; main()"
_RUN_MOTO = "import sys; from moto.server import main; main(sys.argv[2:])"


class MinistackServer(HttpServer):
    """An S3 that checks signatures, of URLs too, and checksums; the keys of its root, `test`, it doesn't check."""

    _name = "s3"
    _answered = "/_ministack/health"

    @classmethod
    def why_missing(cls) -> str | None:
        """Why ministack can't be had here, or `None`."""
        return _missing("ministack")

    def _command(self) -> list[str]:
        return [sys.executable, "-c", _RUN_MINISTACK, str(self._folder.path)]

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {
            "AUTH": "true",
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "IOT_MTLS_ENABLED": "false",
            "LOG_LEVEL": "WARNING",
            "SERVICES": "s3,iam,sts",
            "SFTP_ENABLED": "false",
        }


class MotoServer(HttpServer):
    """An S3 that checks no signature, and refuses parts that are too small."""

    _name = "moto"
    _answered = "/moto-api/data.json"

    @classmethod
    def why_missing(cls) -> str | None:
        """Why moto's server can't be had here, or `None`."""
        if importlib.util.find_spec("flask") is None:
            return _missing("moto") or "the package moto lacks its extra `server`"
        return _missing("moto")

    def _command(self) -> list[str]:
        place = ["-H", "127.0.0.1", "-p", str(self.port)]
        return [sys.executable, "-c", _RUN_MOTO, str(self._folder.path), *place]


def _missing(package: str) -> str | None:
    return None if importlib.util.find_spec(package) else f"the package {package} is not installed"
