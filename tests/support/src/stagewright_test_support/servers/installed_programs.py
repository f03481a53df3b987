"""Where the programs of servers are, and copies of them for an account that can't run those."""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

from stagewright_test_support.servers.account import Account

__all__ = ["can_run", "find_package", "find_program", "give_away", "is_offered"]

# Daemons stand where a plain user's PATH doesn't lead.
_PLACES = os.pathsep.join(("/usr/sbin", "/usr/local/sbin", "/usr/libexec"))


def find_program(name: str) -> Path | None:
    """A program of the system, also one for daemons."""
    places = os.pathsep.join((*_path_of_the_system(), _PLACES))
    path = shutil.which(name, path=places)
    return Path(path) if path else None


def _path_of_the_system() -> list[str]:
    """Without what this Python's environment puts before it: packages bring programs of the same names."""
    own = Path(sys.prefix)
    is_environment = sys.prefix != sys.base_prefix
    return [place for place in os.get_exec_path() if not (is_environment and Path(place).is_relative_to(own))]


def find_package(name: str) -> Path | None:
    """The folder of an installed package for Python, which isn't imported."""
    found = importlib.util.find_spec(name)
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0]) if places else None


def is_offered(package: str) -> bool:
    """Tells whether the extra `servers` brings the package for this Python and this system."""
    lines = importlib.metadata.requires("stagewright-test-support") or ()
    offered = [one for one in map(Requirement, lines) if one.name == package]
    return any(one.marker is None or one.marker.evaluate({"extra": "servers"}) for one in offered)


def can_run(program: Path, account: Account | None) -> bool:
    """Tells whether the account can run the program, by asking for its version."""
    if account is None:
        return True
    try:
        ended = subprocess.run(
            [program, "--version"],
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


def give_away(folder: Path, account: Account) -> None:
    """Makes a folder and all in it the account's."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, *account, follow_symlinks=False)
