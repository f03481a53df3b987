"""Where the stages of runs are kept."""

from typing import Protocol

from stagewright.records import StagePatch, StoredStage

__all__ = ["StageStore"]


class StageStore(Protocol):
    """Stages, one row per run and stage id."""

    async def create_stage(self, stage: StoredStage) -> None:
        """Insert a stage.

        Raises:
            DuplicateRecordError: If its run has a stage of that id already, at the latest at commit.
            RecordNotFoundError: If its run doesn't exist, at the latest at commit.
        """
        ...

    async def update_stage(
        self, stage_record_id: str, patch: StagePatch, *, expected_version: int | None = None
    ) -> None:
        """Change the fields that the patch sets, and raise the row's version by one.

        Raises:
            StaleVersionError: If `expected_version` is given and isn't the row's, at the latest at commit.
            RecordNotFoundError: If there is no such record, at the latest at commit.
        """
        ...

    async def get_stage(self, run_id: str, stage_id: str) -> StoredStage | None:
        """The stage of that run as this transaction sees it, or None."""
        ...

    async def get_stages_by_run(self, run_id: str) -> list[StoredStage]:
        """All stages of a run, by execution group, then by stage number."""
        ...
