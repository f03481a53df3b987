"""Backends the tests run against, and what a missing one means.

On a laptop a missing backend skips its tests and says why. Under `CI=true`, or where
`STAGEWRIGHT_REQUIRE` names it, it is a failure. What no package brings for this Python and this system
is a failure where it is named alone.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import pytest

from stagewright_test_support.servers.pgbouncer import pgbouncer_missing
from stagewright_test_support.servers.s3_emulators import MotoServer
from stagewright_test_support.servers.shared import SERVER_KINDS

__all__ = ["BACKENDS", "Backend", "give_up", "missing_backends", "need_backend", "required_backends"]

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Backend:
    """One thing the tests can run against.

    Attributes:
        name: How `STAGEWRIGHT_REQUIRE` and the tests call it.
        why_missing: Answers `None` when it can be had, else the reason why not.
        is_offered: Answers False where nobody offers it for this Python and this system.
    """

    name: str
    why_missing: Callable[[], str | None]
    is_offered: Callable[[], bool] = lambda: True


def _memory_missing() -> str | None:
    if importlib.util.find_spec("stagewright.memory") is None:
        return "stagewright.memory is not installed"
    return None


def _sqlite_missing() -> str | None:
    if importlib.util.find_spec("_sqlite3") is None:
        return "this Python was built without sqlite3"
    return None


BACKENDS: Mapping[str, Backend] = {
    "memory": Backend("memory", _memory_missing),
    "sqlite": Backend("sqlite", _sqlite_missing),
    **{kind.name: Backend(kind.name, kind.why_missing, kind.is_offered) for kind in SERVER_KINDS.values()},
    "pgbouncer": Backend("pgbouncer", pgbouncer_missing),
    "moto": Backend("moto", MotoServer.why_missing),
}


def required_backends(environment: Environment = os.environ) -> frozenset[str]:
    """The names in `STAGEWRIGHT_REQUIRE`, which is a list with commas."""
    names = environment.get("STAGEWRIGHT_REQUIRE", "").split(",")
    return frozenset(name.strip() for name in names if name.strip())


def missing_backends(required: frozenset[str], backends: Mapping[str, Backend] = BACKENDS) -> list[str]:
    """One line for each required backend that is unknown or can't be had."""
    lines: list[str] = []
    for name in sorted(required):
        backend = backends.get(name)
        reason = "no backend has this name" if backend is None else backend.why_missing()
        if reason is not None:
            lines.append(f"{name}: {reason}")
    return lines


def need_backend(
    name: str,
    *,
    backends: Mapping[str, Backend] = BACKENDS,
    environment: Environment = os.environ,
) -> None:
    """Returns where the backend can be had; otherwise skips the test, or fails it where it is required."""
    reason = backends[name].why_missing()
    if reason is not None:
        give_up(name, reason, backends=backends, environment=environment)


def give_up(
    name: str,
    reason: str,
    *,
    backends: Mapping[str, Backend] = BACKENDS,
    environment: Environment = os.environ,
) -> NoReturn:
    """Skips the test because the backend can't be had, or fails it where it is required."""
    is_named = name in required_backends(environment)
    if is_named or (environment.get("CI") == "true" and _is_offered(name, backends)):
        pytest.fail(f"required backend {name!r} is missing: {reason}", pytrace=False)
    pytest.skip(f"backend {name!r} is missing: {reason}")


def _is_offered(name: str, backends: Mapping[str, Backend]) -> bool:
    return name not in backends or backends[name].is_offered()
