"""Results of steps: inline in the ledger, or in the blob store when they are large."""

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from stagewright.errors import StepLedgerWriteError, StepRowGoneError
from stagewright.json_values import Json
from stagewright.ports import StageResources
from stagewright.records import ClaimCheck, StepRecord
from stagewright.runtime.claim_check import encoded, load_spilled, put_spilled

__all__ = ["StoredResult", "load_result", "record_result", "store_result"]

_log: Final = logging.getLogger("stagewright.kernel")


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What goes into a step's row: the result, or where it lies."""

    result: Json
    claim: ClaimCheck | None


async def store_result(resources: StageResources, step: StepRecord, result: Json) -> StoredResult:
    """Put a result above the spill threshold into the blob store, under a key that nobody else uses.

    Raises:
        StepLedgerWriteError: If the blob store can't keep it.
    """
    data = encoded(result)
    if len(data) <= resources.spill_threshold_bytes:
        return StoredResult(result, None)
    key = f"{resources.steps_prefix}{step.id}-{resources.ids.new_id()}.json"
    try:
        return StoredResult(None, await put_spilled(resources.blob_store, key, data))
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise StepLedgerWriteError(step.step_id, "the result", problem) from error


async def load_result(resources: StageResources, step: StepRecord) -> Json:
    """The result of a completed step.

    Raises:
        SpilledPayloadUnavailableError: If it is spilled and can't be had.
    """
    return (
        step.result
        if step.result_claim is None
        else await load_spilled(resources.blob_store, step.result_claim)
    )


async def record_result(
    resources: StageResources, stored: StoredResult, change: Awaitable[tuple[bool, StepRecord]]
) -> tuple[bool, StepRecord]:
    """Let a result be recorded, and remove its blob when another one's was, or no row is left to refer to it.

    Where the ledger's answer got lost the row may refer to the blob, which stays and goes with its run.

    Returns:
        What the change of the row answers.
    """
    try:
        applied, row = await change
    except StepRowGoneError:
        await _discard(resources, stored)
        raise
    if not applied:
        await _discard(resources, stored)
    return applied, row


async def _discard(resources: StageResources, stored: StoredResult) -> None:
    if stored.claim is None:
        return
    try:
        await resources.blob_store.delete(stored.claim.key)
    except Exception:  # a blob that nothing refers to wastes space and harms nobody
        _log.warning("the blob of a step's dropped result is left over", exc_info=True)
