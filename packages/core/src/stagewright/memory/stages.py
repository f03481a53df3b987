from collections.abc import Collection
from dataclasses import replace

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.memory.copies import detached, detached_fields
from stagewright.memory.runs import InMemoryRunStore
from stagewright.records import LoadedRun, StagePatch, StoredStage

__all__ = ["InMemoryStageStore"]


class InMemoryStageStore(InMemoryRunStore):
    """Stages, one row per run and stage id, and runs with them; see `StageStore` and `RunStore`."""

    async def create_stage(self, stage: StoredStage) -> None:
        """Insert a stage."""
        stages = self._database.stages
        async with self._statement("create_stage") as tx:
            if tx.get(self._database.runs, stage.run_id) is None:
                raise RecordNotFoundError("run", stage.run_id)
            unique = (stage.run_id, stage.stage_id)
            await tx.lock((stages.name, stage.id))
            await tx.lock(("stages of runs", unique))
            if tx.get(stages, stage.id) is not None:
                raise DuplicateRecordError("stage", stage.id)
            if tx.first(stages, "stage", unique) is not None:
                raise DuplicateRecordError("stage", f"{stage.run_id}/{stage.stage_id}")
            tx.put(stages, detached(stage))

    async def update_stage(
        self, stage_record_id: str, patch: StagePatch, *, expected_version: int | None = None
    ) -> None:
        """Change the fields that the patch sets, and raise the version by one."""
        stages = self._database.stages
        async with self._statement("update_stage") as tx:
            stage = await tx.lock_row(stages, stage_record_id)
            if stage is None:
                raise RecordNotFoundError("stage", stage_record_id)
            if expected_version is not None and stage.version != expected_version:
                raise StaleVersionError("stage", stage_record_id, expected_version, stage.version)
            tx.put(stages, replace(stage, **detached_fields(patch), version=stage.version + 1))

    async def get_stage(self, run_id: str, stage_id: str) -> StoredStage | None:
        """The stage, or None."""
        async with self._statement("get_stage") as tx:
            stage = tx.first(self._database.stages, "stage", (run_id, stage_id))
            return None if stage is None else detached(stage)

    async def get_stages_by_run(self, run_id: str) -> list[StoredStage]:
        """All stages of a run, by execution group, then by stage number."""
        async with self._statement("get_stages_by_run") as tx:
            stages = tx.where(self._database.stages, "run", run_id)
            stages.sort(key=lambda stage: (stage.execution_group, stage.stage_number))
            return [detached(stage) for stage in stages]

    async def load_runs(self, run_ids: Collection[str], *, lock: bool = False) -> list[LoadedRun]:
        """Read runs with their stages; with `lock`, once they are locked."""
        async with self._statement("load_runs") as tx:
            loaded: list[LoadedRun] = []
            runs = self._database.runs
            ordered = sorted(set(run_ids))
            for run_id in ordered if lock else ():
                await tx.lock_row(runs, run_id)
            for run_id in ordered:
                run = tx.get(runs, run_id)
                if run is not None:
                    stages = tx.where(self._database.stages, "run", run_id)
                    stages.sort(key=lambda stage: (stage.execution_group, stage.stage_number))
                    loaded.append(LoadedRun(detached(run), tuple(detached(stage) for stage in stages)))
            return loaded
