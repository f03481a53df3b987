"""What the figures were measured on."""

import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

__all__ = ["RUN_DISTRIBUTIONS", "database_facts", "machine_facts"]

RUN_DISTRIBUTIONS = (
    "stagewright-core",
    "stagewright-persistence-sqlalchemy",
    "sqlalchemy",
    "asyncpg",
    "aiosqlite",
    "pydantic",
)


def database_facts(*, postgres: str) -> dict[str, str]:
    """The databases that runs are kept in; `postgres` is the server's own word on its version."""
    return {
        "postgresql": f"{postgres}, fsync and synchronous_commit on",
        "sqlite": f"{sqlite3.sqlite_version}, WAL, synchronous=FULL",
    }


def machine_facts(servers: Mapping[str, str], distributions: Sequence[str]) -> dict[str, str]:
    """The machine and the versions, by what is told.

    Args:
        servers: The servers with their versions.
        distributions: What is installed, of which the versions are told.
    """
    facts = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "load": " ".join(f"{one:.1f}" for one in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown",
        "memory": _memory(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return facts | dict(servers) | {name: version(name) for name in distributions}


def _memory() -> str:
    told = Path("/proc/meminfo")
    if not told.is_file():
        return "unknown"
    total = told.read_text(encoding="utf-8").split(maxsplit=2)[1]
    return f"{int(total) / 1024**2:.0f} GiB"
