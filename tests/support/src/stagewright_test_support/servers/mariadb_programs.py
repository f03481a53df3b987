"""The programs of MariaDB, which the system's package `mariadb-server` brings."""

import os
import sys
from pathlib import Path

from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.installed_programs import find_program

__all__ = ["mariadb_environment", "mariadb_missing", "mariadb_program"]

_NEEDED = ("mariadbd", "mariadb-install-db", "mariadb")


def mariadb_missing() -> str | None:
    """Why MariaDB can't be had here, or `None`."""
    if sys.platform == "win32":
        return "its launcher knows Linux and macOS only"
    absent = [name for name in _NEEDED if find_program(name) is None]
    if absent:
        return (
            f"there is no {absent[0]} here; on Debian: apt-get install --no-install-recommends mariadb-server"
        )
    return None


def mariadb_program(name: str) -> Path:
    """Where a program is.

    Raises:
        ServerError: MariaDB can't be had.
    """
    reason, found = mariadb_missing(), find_program(name)
    if reason is not None or found is None:
        raise ServerError("mariadb", reason or f"{name} is gone")
    return found


def mariadb_environment() -> dict[str, str]:
    """This process's environment without what steers MariaDB's programs, and with plain messages."""
    steering = ("MYSQL", "MARIADB", "LC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    return kept | {"LC_ALL": "C"}
