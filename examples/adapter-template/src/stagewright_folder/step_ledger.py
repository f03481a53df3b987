"""Durable steps, all those of a stage record in one file."""

import builtins
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter
from stagewright.errors import OutcomeUnknownError
from stagewright.records import StepExpectation, StepPatch, StepRecord, set_fields

from stagewright_folder.files import (
    in_thread,
    locked,
    name_of,
    publish,
    read_or_none,
    remove,
    unfinished_file,
)

_STEPS = TypeAdapter(list[StepRecord])


class FolderStepLedger:
    """A `StepLedger` of one file for each stage record, changed by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._steps = folder / "steps"
        self._records = folder / "records"
        self._locks = folder / "locks"
        self._unfinished = folder / "unfinished"

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        """The step, or None."""
        steps = await in_thread(self._read, name_of(stage_record_id))
        return next((step for step in steps if step.step_id == step_id), None)

    async def list(self, stage_record_id: str) -> list[StepRecord]:
        """All steps of a stage record, by `seq`, then by the record's `id`."""
        steps = await in_thread(self._read, name_of(stage_record_id))
        return sorted(steps, key=lambda step: (step.seq, step.id))

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        """Insert a step if its stage record has none of that `step_id`; the row that is there now."""
        return await in_thread(self._claim, record)

    def _claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        stage = name_of(record.stage_record_id)
        with locked(self._lock(stage)):
            steps = self._read(stage)
            for step in steps:
                if step.step_id == record.step_id:
                    return False, step
            # First, so that no step is ever without it; one without its step says nothing.
            self._publish(self._records / name_of(record.id), stage.encode())
            self._write(stage, [*steps, record])
        return True, record

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        """Change a step if it is as expected; whether it was, and the row that is there now."""
        return await in_thread(self._compare_and_set, record_id, expectation, patch)

    def _compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        stage = read_or_none(self._records / name_of(record_id))
        if stage is None:
            return False, None
        return self._change(stage.decode(), record_id, expectation, patch)

    def _change(
        self, stage: str, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        with locked(self._lock(stage)):
            steps = self._read(stage)
            for place, step in enumerate(steps):
                if step.id == record_id:
                    break
            else:
                return False, None
            attempts = (None, step.attempt)
            if step.status != expectation.status or expectation.attempt not in attempts:
                return False, step
            changed = replace(step, **set_fields(patch))
            self._write(stage, [*steps[:place], changed, *steps[place + 1 :]])
        return True, changed

    async def clear(self, stage_record_id: str) -> None:
        """Delete all steps of a stage record."""
        await in_thread(self._keep, stage_record_id, lambda step: False)

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        """Delete the steps of a stage record but for the step ids in `keep`."""
        kept = frozenset(keep)
        await in_thread(self._keep, stage_record_id, lambda step: step.step_id in kept)

    def _keep(self, stage_record_id: str, wanted: Callable[[StepRecord], bool]) -> None:
        stage = name_of(stage_record_id)
        with locked(self._lock(stage)):
            steps = self._read(stage)
            gone = [step for step in steps if not wanted(step)]
            if not gone:
                return
            if len(gone) < len(steps):
                self._write(stage, [step for step in steps if wanted(step)])
            else:
                remove(self._steps / stage)
            self._forget(gone)

    def _forget(self, gone: Iterable[StepRecord]) -> None:
        """Last, for the same reason that they are written first."""
        try:
            for step in gone:
                remove(self._records / name_of(step.id))
        except OSError as error:
            problem = f"the steps are gone, but not all that tells of them: {error}"
            raise OutcomeUnknownError(problem) from error

    def _lock(self, stage: str) -> Path:
        # These are 256 files, however many stage records there are.
        return self._locks / stage[:2]

    def _read(self, stage: str) -> builtins.list[StepRecord]:
        data = read_or_none(self._steps / stage)
        return [] if data is None else _STEPS.validate_json(data)

    def _write(self, stage: str, steps: builtins.list[StepRecord]) -> None:
        self._publish(self._steps / stage, _STEPS.dump_json(steps))

    def _publish(self, path: Path, data: bytes) -> None:
        with unfinished_file(self._unfinished) as file:
            file.write(data)
            publish(file, path)
