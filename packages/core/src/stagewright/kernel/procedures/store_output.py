"""Putting what is too large for a row into the blob store, before the transaction that refers to it."""

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from stagewright.errors import (
    BlobStoreRefusedError,
    OutcomeUnknownError,
    OutputNotStoredError,
    TransientError,
)
from stagewright.json_values import Json
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.execution import Execution
from stagewright.ports import BodyReturned
from stagewright.records import ClaimCheck
from stagewright.runtime.claim_check import encoded, put_spilled
from stagewright.runtime.keys import stage_prefix

__all__ = ["StoredOutput", "discard_output", "store_output"]

_TRIES: Final = 3
_log: Final = logging.getLogger("stagewright.kernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOutput:
    """What goes into the stage's row for an output and its artifacts.

    Attributes:
        output: The output, unless it is spilled.
        output_claim: Where a spilled output lies.
        artifacts: Where the artifacts lie, by name.
    """

    output: Json
    output_claim: ClaimCheck | None
    artifacts: dict[str, ClaimCheck] = field(default_factory=dict)


async def store_output(ports: KernelPorts, execution: Execution, returned: BodyReturned) -> StoredOutput:
    """Store artifacts, and an output above the spill threshold, each under a key that nobody else uses.

    Raises:
        OutputNotStoredError: If the blob store doesn't take one of them; none of them is left then.
    """
    prefix = stage_prefix(execution.workflow.id, execution.run_id, execution.stage.id)
    artifacts: dict[str, ClaimCheck] = {}
    try:
        for name, value in returned.artifacts.items():
            key = f"{prefix}artifacts/{quote(name, safe='')}-{ports.ids.new_id()}.json"
            artifacts[name] = await _put(ports, key, encoded(value))
        data = encoded(returned.output)
        if len(data) <= ports.settings.spill_threshold_bytes:
            return StoredOutput(output=returned.output, output_claim=None, artifacts=artifacts)
        claim = await _put(ports, f"{prefix}output-{ports.ids.new_id()}.json", data)
        return StoredOutput(output=None, output_claim=claim, artifacts=artifacts)
    except (TransientError, OutcomeUnknownError, BlobStoreRefusedError) as error:
        await discard_output(ports, StoredOutput(output=None, output_claim=None, artifacts=artifacts))
        raise OutputNotStoredError(
            stage_id=execution.stage.id,
            problem=str(error),
            retryable=not isinstance(error, BlobStoreRefusedError),
        ) from error


async def _put(ports: KernelPorts, key: str, data: bytes) -> ClaimCheck:
    """Store a blob; what a store couldn't do this time is asked for again, three times in all."""
    for _ in range(_TRIES - 1):
        with suppress(TransientError):
            return await put_spilled(ports.blob_store, key, data)
    return await put_spilled(ports.blob_store, key, data)


async def discard_output(ports: KernelPorts, stored: StoredOutput | None) -> None:
    """Remove the blobs of an outcome that was not recorded."""
    if stored is None:
        return
    claims = [*stored.artifacts.values(), *([stored.output_claim] if stored.output_claim else [])]
    if not claims:
        return
    try:
        await ports.blob_store.delete_many([claim.key for claim in claims])
    except Exception:  # a blob that nothing refers to wastes space and harms nobody
        _log.warning("%d blobs of a discarded outcome are left over", len(claims), exc_info=True)
