"""Where the stages of runs are kept."""

from datetime import datetime
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

    async def upsert_stage(self, stage: StoredStage) -> StoredStage:
        """Insert a stage, or write it over the one of that id that its run has.

        A stage that is there keeps its `id` and its `created_at`, and its version rises by one; all other fields are
        the given ones. A new one is inserted as it is given. The run is locked until the transaction ends: of several
        callers at once one inserts, and the others wait and write over that.

        Returns:
            The row that is stored now.

        Raises:
            DuplicateRecordError: If a new one's `id` is another stage's.
            RecordNotFoundError: If its run doesn't exist.
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

    async def nudge_stage(self, stage_record_id: str, at: datetime) -> None:
        """Let a stage wait no longer than until `at`: a `next_poll_at` that is later becomes `at`, `nudged_at` is `at`.

        A `next_poll_at` of None stays. The row's version stays too: what others do with the stage isn't refused for it.

        Raises:
            RecordNotFoundError: If there is no such record, at the latest at commit.
        """
        ...

    async def delete_stage(self, stage_record_id: str) -> None:
        """Delete a stage; nothing happens if there is none.

        Annotations that were made in it stay, with None for their stage record.
        """
        ...

    async def get_stage(self, run_id: str, stage_id: str) -> StoredStage | None:
        """The stage of that run as this transaction sees it, or None."""
        ...

    async def get_stages_by_run(self, run_id: str) -> list[StoredStage]:
        """All stages of a run, by execution group, then by stage number."""
        ...
