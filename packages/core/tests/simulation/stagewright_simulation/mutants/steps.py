"""Durable steps, waits and signals."""

from typing import Final

from stagewright_simulation.patches import Patch

__all__ = ["MUTANTS"]

_LEDGER: Final = "stagewright.memory.step_ledger"
_RUN: Final = "stagewright.runtime.steps.run"
_INBOX: Final = "stagewright.kernel.procedures.signal_inbox"

MUTANTS: Final[dict[str, tuple[Patch, ...]]] = {
    "an outcome of a step can be written again": (
        Patch(
            _LEDGER,
            "return step.id == record_id and step.status == expectation.status and same_attempt",
            "return step.id == record_id",
        ),
    ),
    "two executions have one step": (
        Patch(
            _LEDGER,
            "same_attempt = expectation.attempt in (None, step.attempt)",
            "same_attempt = True",
        ),
    ),
    "a claimed step can be claimed again": (
        Patch(
            _LEDGER,
            "            if stored is None:\n",
            '            if stored is None or stored.status == "running":\n',
        ),
    ),
    "a replay makes steps again": (
        Patch(
            _RUN,
            '        if row.status == "completed":\n            return Answer(self._function.load',
            '        if row.status == "completed" and row.result_claim is not None:\n'
            "            return Answer(self._function.load",
        ),
    ),
    "a step returns what it kept from others": (
        Patch(
            _RUN,
            "            return Answer(back)\n        return await self._recorded_before(row, current)",
            "            return Answer(back)\n        return Answer(back)",
        ),
    ),
    "the blob of a kept result is removed": (
        Patch(
            "stagewright.runtime.steps.results",
            "    if not applied:\n        await _discard(resources, stored)\n    return applied, row",
            "    await _discard(resources, stored)\n    return applied, row",
        ),
    ),
    "a deadline slides": (
        Patch(
            "stagewright.runtime.steps.waits",
            "patch = StepPatch(updated_at=self._resources.clock.now(), poll_failures=failures)",
            "patch = StepPatch(updated_at=self._resources.clock.now(), poll_failures=failures, "
            "deadline_at=add_duration(self._resources.clock.now(), self._options.timeout, field='timeout'))",
        ),
    ),
    "a sleep ends early": (
        Patch(
            "stagewright.runtime.steps.sleep",
            "now < row.deadline_at:\n        return row.deadline_at\n",
            "now < row.deadline_at - duration / 2:\n        return row.deadline_at - duration / 2\n",
        ),
    ),
    "a taken signal is lost": (
        Patch(
            _INBOX,
            "        applied, row = await self._decide(unit.ledger, step, signal)\n"
            "        if applied and signal is not None:\n"
            "            await unit.tx.delete_signal(signal.id)",
            "        if signal is not None:\n"
            "            await self._ports.persistence.delete_signal(signal.id)\n"
            "        applied, row = await self._decide(unit.ledger, step, signal)",
        ),
    ),
    "a signal between look and suspension wakes nobody": (
        Patch(
            "stagewright.kernel.procedures.record_outcome",
            "min(waits.next_poll_at, record.nudged_at or waits.next_poll_at)",
            "waits.next_poll_at",
        ),
    ),
}
