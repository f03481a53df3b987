"""Runs of workflows and versions that a host doesn't serve: said once of each, for as long as there are some."""

import logging
from collections.abc import Iterable
from typing import Final

from stagewright.records import VersionSummary

__all__ = ["UnservedRuns"]

_log: Final = logging.getLogger("stagewright.host")


class UnservedRuns:
    """What waits for a worker of another build.

    Attributes:
        waiting: Of each such version, in words, how many runs of it have not ended.
    """

    def __init__(self) -> None:
        self.waiting: tuple[str, ...] = ()
        self._known: set[tuple[str, str | None]] = set()

    def note(self, found: Iterable[VersionSummary]) -> None:
        """Take note of what the store has, and warn of what is new."""
        of_version = {(one.workflow_id, one.definition_version): one for one in found}
        for key, one in of_version.items():
            if key not in self._known:
                _log.warning("%s; without a worker that does, they wait", _in_words(one))
        self._known = set(of_version)
        self.waiting = tuple(map(_in_words, of_version.values()))


def _in_words(one: VersionSummary) -> str:
    version = f"workflow {one.workflow_id!r} in version {one.definition_version!r}"
    return f"{one.active} runs of {version} are not served here"
