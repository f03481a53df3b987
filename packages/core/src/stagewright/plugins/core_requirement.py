"""Whether a distribution was built for a newer core than the one that is running."""

import re
from importlib.metadata import Distribution, PackageNotFoundError, version
from typing import Final

__all__ = ["core_version", "newer_core_needed"]

_CORE: Final = "stagewright-core"

_REQUIREMENT: Final = re.compile(
    r"\s*(?P<name>[A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?(?P<clauses>[^;()]*)\)?\s*"
)
_LOWER_BOUND: Final = re.compile(r"\s*(?:>=|>|~=|===?)\s*(?P<version>[^\s*]+?)(?:\.\*)?\s*")
_VERSION: Final = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)(?:[-_.]?(?P<stage>dev|a|b|rc)[-_.]?(?P<number>\d*))?.*",
    re.IGNORECASE,
)
_STAGES: Final = {"dev": 0, "a": 1, "b": 2, "rc": 3}
_FINAL: Final = (4, 0)


def core_version() -> str | None:
    """The version of the installed core; None when it runs from its sources without being installed."""
    try:
        return version(_CORE)
    except PackageNotFoundError:
        return None


def newer_core_needed(distribution: Distribution, running: str | None) -> str | None:
    """The requirement of a distribution that the running core is too old for, as `stagewright-core>=2.1`.

    An installer that is told to ignore dependencies, or a downgrade of the core, leaves such a plugin behind; its
    requirement explains more than the import error that it would end in. Requirements under a marker or an extra
    don't count.

    Args:
        distribution: An installed distribution.
        running: The version of the running core; None is new enough for everything.
    """
    have = None if running is None else _sort_key(running)
    if have is None:
        return None
    for text in distribution.requires or []:
        requirement = _REQUIREMENT.fullmatch(text)
        if requirement is None or re.sub(r"[-_.]+", "-", requirement["name"]).lower() != _CORE:
            continue
        for clause in requirement["clauses"].split(","):
            bound = _LOWER_BOUND.fullmatch(clause)
            need = None if bound is None else _sort_key(bound["version"])
            if need is not None and have < need:
                return f"{_CORE}{clause.strip()}"
    return None


def _sort_key(text: str) -> tuple[int, tuple[int, ...], tuple[int, int]] | None:
    """Epoch, release without trailing zeros, and what comes before the final release."""
    matched = _VERSION.fullmatch(text)
    if matched is None:
        return None
    release = tuple(int(part) for part in re.sub(r"(?:\.0+)+$", "", matched["release"]).split("."))
    stage = matched["stage"]
    before = _FINAL if stage is None else (_STAGES[stage.lower()], int(matched["number"] or 0))
    return int(matched["epoch"] or 0), release, before
