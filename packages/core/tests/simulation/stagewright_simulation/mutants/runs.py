"""Runs and their groups."""

from typing import Final

from stagewright_simulation.patches import Patch

__all__ = ["MUTANTS"]

_CANCEL: Final = "stagewright.kernel.commands.run_cancel"
_RECORD: Final = "stagewright.kernel.procedures.record_outcome"

MUTANTS: Final[dict[str, tuple[Patch, ...]]] = {
    "a cancellation doesn't wait for the run": (
        Patch(
            _CANCEL,
            "await unit.tx.load_runs([command.run_id], lock=True)",
            "await unit.tx.load_runs([command.run_id])",
        ),
    ),
    "an old build takes up a new version": (
        Patch(
            "stagewright.kernel.context",
            "        return None if isinstance(serves, str) else [pair for pair in serves if not self._differs(pair)]",
            "        return None",
        ),
        Patch(
            "stagewright.kernel.context",
            "            return self.served_definitions()\n",
            "            return None\n",
        ),
        Patch(
            "stagewright.kernel.context",
            "if workflow is None or run.definition_version not in (None, workflow.definition_version):",
            "if workflow is None:",
        ),
    ),
    "a cancelled run takes outcomes": (
        Patch(
            _RECORD,
            "if not loaded or loaded[0].run.status is not Status.RUNNING:",
            "if not loaded:",
        ),
        Patch(
            _RECORD,
            "current.attempt != started.attempt or current.status is not Status.RUNNING",
            "current.attempt != started.attempt",
        ),
    ),
    "an outcome takes its run for unchanged": (
        Patch(_RECORD, "await unit.tx.expect_run(expected)", "pass"),
        Patch(_RECORD, "ending.patch, expected_version=version", "ending.patch"),
    ),
    "siblings don't wait for each other": (
        Patch(
            _RECORD,
            "await unit.tx.load_runs([execution.run_id], lock=True)",
            "await unit.tx.load_runs([execution.run_id])",
        ),
    ),
    "a redrive doesn't raise attempts": (
        Patch(
            "stagewright.kernel.procedures.redrive_run",
            "attempt=stage.attempt + 1,",
            "attempt=stage.attempt,",
        ),
    ),
    "a keyed command keeps its key apart": (
        Patch(
            "stagewright.kernel.kernel",
            "await keyed.once(unit.tx, ",
            "await keyed.once(self.ports.persistence, ",
        ),
    ),
    "a purge doesn't wait for events": (
        Patch("stagewright.memory.purges", "and not self._has_pending(tx, run.id)", ""),
        Patch(
            "stagewright.kernel.commands.run_purge",
            "if not locked or not _is_due(command, locked[0]) or await unit.tx.has_pending_events(run_id):",
            "if not locked or not _is_due(command, locked[0]):",
        ),
    ),
    "a purge forgets steps": (
        Patch(
            "stagewright.kernel.commands.run_purge",
            "            await unit.ledger.clear(record_id)\n    await unit.tx.delete_run",
            "            continue\n    await unit.tx.delete_run",
        ),
    ),
    "a purge that was cut short is forgotten": (
        Patch(
            "stagewright.kernel.commands.run_purge",
            "    await unit.tx.put_tombstone(tombstone)\n",
            "",
        ),
    ),
}
