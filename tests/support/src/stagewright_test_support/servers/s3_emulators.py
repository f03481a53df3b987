"""Two emulators of S3, each of which shows what the other doesn't."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.http_server import HttpServer

__all__ = ["MinistackServer", "MotoServer", "ministack_missing", "moto_missing"]

_RUN_MINISTACK = "import sys; from ministack.app import main; del sys.argv[1:]; main()"
_RUN_MOTO = "import sys; from moto.server import main; main(sys.argv[2:])"


def ministack_missing() -> str | None:
    """Why ministack can't be had here, or `None`."""
    return _missing("ministack")


def moto_missing() -> str | None:
    """Why moto's server can't be had here, or `None`."""
    return _missing("moto") or (
        None if importlib.util.find_spec("flask") else "moto lacks its extra `server`"
    )


class MinistackServer(HttpServer):
    """An S3 that checks signatures, of URLs too, and checksums; the keys of its root, `test`, it doesn't check."""

    @classmethod
    def start(cls, *, root: Path | None = None) -> Self:
        """Returns when it answers.

        Raises:
            ServerError: It can't be had or didn't start; the last lines of its log are told.
        """
        _refuse_if(ministack_missing())
        return cls.run("s3", _ministack, ready="/_ministack/health", root=root)


class MotoServer(HttpServer):
    """An S3 that checks no signature, and refuses parts that are too small."""

    @classmethod
    def start(cls, *, root: Path | None = None) -> Self:
        """Returns when it answers.

        Raises:
            ServerError: It can't be had or didn't start; the last lines of its log are told.
        """
        _refuse_if(moto_missing())
        return cls.run("moto", _moto, ready="/moto-api/data.json", root=root)


def _ministack(folder: Path, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
    environment = {
        "AUTH": "true",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "HOME": str(folder),
        "IOT_MTLS_ENABLED": "false",
        "LOG_LEVEL": "WARNING",
        "SERVICES": "s3,iam,sts",
        "SFTP_ENABLED": "false",
        "TMPDIR": str(folder),
    }
    # The folder is among the arguments so that a later sweep knows the process again.
    return [sys.executable, "-c", _RUN_MINISTACK, str(folder)], environment


def _moto(folder: Path, port: int) -> tuple[Sequence[str], Mapping[str, str]]:
    command = [sys.executable, "-c", _RUN_MOTO, str(folder), "-H", "127.0.0.1", "-p", str(port)]
    return command, {"HOME": str(folder), "TMPDIR": str(folder)}


def _missing(package: str) -> str | None:
    return None if importlib.util.find_spec(package) else f"the package {package} is not installed"


def _refuse_if(reason: str | None) -> None:
    if reason is not None:
        raise ServerError("s3", reason)
