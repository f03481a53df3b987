"""Transactions and values in the blob store."""

from typing import Final

from stagewright_simulation.patches import Patch

__all__ = ["MUTANTS"]

MUTANTS: Final[dict[str, tuple[Patch, ...]]] = {
    "a rollback keeps what was written": (
        Patch(
            "stagewright.memory.transaction",
            "        self._ended = True\n        self._changes.clear()\n",
            "        self._ended = True\n"
            "        for changes in self._changes.values():\n"
            "            changes.apply()\n",
        ),
    ),
    "outputs of one stage share a key": (
        Patch(
            "stagewright.kernel.procedures.store_output",
            'f"{prefix}output-{ports.ids.new_id()}.json"',
            'f"{prefix}output.json"',
        ),
    ),
    "the output of whoever came first is removed": (
        Patch(
            "stagewright.kernel.commands.job_execute",
            "        result = replace(_flat(recorded, outcome), leaves_jobs=unit.leaves_jobs)\n",
            "        result = replace(_flat(recorded, outcome), leaves_jobs=unit.leaves_jobs)\n"
            "        await discard_output(ports, stored)\n",
        ),
    ),
    "a lock holds nobody back": (
        Patch(
            "stagewright.memory.locks",
            "        if current is not holder:\n            return False\n",
            "        if current is not holder:\n            return True\n",
        ),
    ),
}
