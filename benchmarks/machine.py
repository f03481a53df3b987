"""What the figures were measured on."""

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

__all__ = ["machine_facts"]

_DISTRIBUTIONS = (
    "stagewright-core",
    "stagewright-persistence-sqlalchemy",
    "sqlalchemy",
    "asyncpg",
    "aiosqlite",
    "pydantic",
)


def machine_facts(*, postgres: str) -> dict[str, str]:
    """The machine and the versions, by what is told; `postgres` is the server's own word on its version."""
    facts = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "load": " ".join(f"{one:.1f}" for one in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown",
        "memory": _memory(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "postgresql": f"{postgres}, fsync and synchronous_commit on",
        "sqlite": f"{sqlite3.sqlite_version}, WAL, synchronous=FULL",
    }
    return facts | {name: version(name) for name in _DISTRIBUTIONS}


def _memory() -> str:
    told = Path("/proc/meminfo")
    if not told.is_file():
        return "unknown"
    total = told.read_text(encoding="utf-8").split(maxsplit=2)[1]
    return f"{int(total) / 1024**2:.0f} GiB"
