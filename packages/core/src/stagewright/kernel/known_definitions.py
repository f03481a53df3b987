"""Whether the workflows of this build are what is stored under their declared versions."""

import logging
from typing import Final, TypeAlias

from stagewright.definitions import Workflow
from stagewright.ports import DefinitionStore

__all__ = ["KnownDefinitions"]

_log: Final = logging.getLogger("stagewright.kernel")
_Build: TypeAlias = tuple[str, str, str]


class KnownDefinitions:
    """What one kernel has learnt of stored definitions, which never change: each is read once.

    Args:
        learnt: What another kernel has learnt; nothing is added to it.
    """

    def __init__(self, learnt: "KnownDefinitions | None" = None) -> None:
        self._fits: dict[_Build, bool] = {} if learnt is None else learnt._fits
        self._learns = learnt is None

    def differs(self, workflow: Workflow) -> bool:
        """Whether another structure is known to be stored under the workflow's version; nothing is read."""
        return self._fits.get(_build(workflow)) is False

    async def fits(self, definitions: DefinitionStore, workflow: Workflow) -> bool:
        """Whether this build may move runs of the workflow's version: its structure is stored, or none is yet."""
        if workflow.declared_version is None:
            return True  # a derived version is the structure's own hash
        build = _build(workflow)
        known = self._fits.get(build)
        if known is not None:
            return known
        stored = await definitions.get_definition(workflow.id, workflow.definition_version)
        if stored is None:
            return True
        fits = stored.structure_hash == workflow.structure_hash
        if not self._learns:
            # What the caller's transaction has stored may be rolled back.
            return fits
        if self._fits.setdefault(build, fits) is False:
            _log.warning(
                "workflow %r has another structure here than the one that is stored as its version %r: runs of that "
                "version are left to a build that has it; declare a new version with .version(...)",
                workflow.id,
                workflow.definition_version,
            )
        return fits


def _build(workflow: Workflow) -> _Build:
    return workflow.id, workflow.definition_version, workflow.structure_hash
