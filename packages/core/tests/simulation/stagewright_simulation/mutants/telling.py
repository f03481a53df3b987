"""Events, annotations and the outbox."""

from typing import Final

from stagewright_simulation.patches import Patch

__all__ = ["MUTANTS"]

_FLUSH: Final = "stagewright.kernel.commands.outbox_flush"
_OUTBOX: Final = "stagewright.memory.outbox"

MUTANTS: Final[dict[str, tuple[Patch, ...]]] = {
    "an event is marked before it is out": (
        Patch(
            _FLUSH,
            "            refusal = await refusal_of(",
            "            self._accepted.append(rest[0].id)\n            await self._mark()\n"
            "            refusal = await refusal_of(",
        ),
    ),
    "a refused event is passed over": (
        Patch(
            _OUTBOX,
            "            if row.retry_at is not None and row.retry_at > now:\n                break\n",
            "            if row.retry_at is not None and row.retry_at > now:\n                continue\n",
        ),
    ),
    "events are numbered past each other": (
        Patch(
            _OUTBOX,
            "                if await tx.lock_row(self._database.runs, run_id) is None:\n",
            "                if tx.get(self._database.runs, run_id) is None:\n",
        ),
        Patch(
            "stagewright.kernel.commands.step_signal",
            "load_runs([command.run_id], lock=True)",
            "load_runs([command.run_id])",
        ),
    ),
    "annotations are written at once": (
        Patch(
            "stagewright.kernel.procedures.annotate",
            "await unit.tx.append_annotations([row for row, _ in rows])",
            "await unit.ports.persistence.append_annotations([row for row, _ in rows])",
        ),
    ),
    "progress is told of discarded outcomes": (
        Patch(
            "stagewright.kernel.commands.job_execute",
            "        await discard_output(ports, stored)\n        await _keep_logs(ports, outcome)\n",
            "        await discard_output(ports, stored)\n"
            "\n"
            "        async def tell(unit: UnitOfWork) -> None:\n"
            "            for event in outcome.progress:\n"
            "                unit.emit(event)\n"
            "\n"
            "        await in_transaction(ports, tell)\n",
        ),
    ),
    "a suspension says nothing": (
        Patch(
            "stagewright.kernel.procedures.record_outcome",
            "    for event in (*outcome.progress, *ending.events):\n",
            "    for event in ending.events:\n",
        ),
    ),
}
