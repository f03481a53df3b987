"""The payload of a job, which goes through queues that take small messages only: a large one lies in the blob store.

What users give stands below a key of the engine's own, so that nothing of theirs is ever taken for a claim check.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from stagewright.errors import SpilledPayloadUnavailableError
from stagewright.json_values import Json
from stagewright.ports import BlobStore
from stagewright.records import ClaimCheck, NewJob
from stagewright.runtime.claim_check import load_spilled
from stagewright.runtime.keys import payloads_prefix

__all__ = ["CLAIM_SIZE", "claim_in", "load_payload", "payload_key", "with_claim"]

CLAIM_SIZE: Final = 200
"""About how many bytes of JSON a claim check has itself."""

_CLAIM: Final = "spilled_payload"
_KEY: Final = re.compile(r"workflow-v2/[^/]+/[^/]+/_jobs/[^/]+-[0-9a-f]{32}\.json")


def payload_key(job: NewJob, data: bytes) -> str:
    """Where the encoded payload of a job lies.

    The key follows from the content, so that whoever writes it again writes the same.
    """
    digest = hashlib.sha256(data).hexdigest()[:32]
    return f"{payloads_prefix(job.workflow_id, job.run_id)}{quote(job.stage_id, safe='')}-{digest}.json"


def with_claim(claim: ClaimCheck) -> dict[str, Json]:
    """What is enqueued in the place of a payload that was spilled."""
    return {_CLAIM: {"key": claim.key, "size": claim.size}}


def claim_in(payload: Mapping[str, Any]) -> ClaimCheck | None:  # Any: a payload comes from a queue as it is
    """Where the payload really lies; None if this is all of it."""
    claim = payload.get(_CLAIM) if len(payload) == 1 else None
    if not isinstance(claim, dict) or claim.keys() != {"key", "size"}:
        return None
    key, size = claim["key"], claim["size"]
    if not isinstance(key, str) or not _KEY.fullmatch(key) or type(size) is not int:
        return None
    return ClaimCheck(key=key, size=size)


async def load_payload(blob_store: BlobStore, payload: dict[str, Json]) -> dict[str, Json]:
    """The payload as it was before it was enqueued.

    Raises:
        SpilledPayloadUnavailableError: If it was spilled and can't be had.
    """
    claim = claim_in(payload)
    if claim is None:
        return payload
    value = await load_spilled(blob_store, claim)
    if not isinstance(value, dict):
        raise SpilledPayloadUnavailableError(claim.key, "it isn't the payload of a job")
    return value
