"""Values in the blob store, behind a claim check."""

import json

from stagewright.errors import BlobNotFoundError, SpilledPayloadUnavailableError
from stagewright.json_values import Json
from stagewright.ports import BlobStore
from stagewright.records import ClaimCheck

__all__ = ["encoded", "load_spilled", "put_spilled"]


def encoded(value: Json) -> bytes:
    """The bytes that a value's size is measured by and that its blob holds: compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


async def put_spilled(blob_store: BlobStore, key: str, data: bytes) -> ClaimCheck:
    """Store encoded bytes under a key that nobody else uses."""
    await blob_store.put(key, data, content_type="application/json")
    return ClaimCheck(key=key, size=len(data))


async def load_spilled(blob_store: BlobStore, claim: ClaimCheck) -> Json:
    """Read a value back.

    Raises:
        SpilledPayloadUnavailableError: If the blob is missing, can't be read, or isn't what was stored.
    """
    try:
        data = await blob_store.get(claim.key)
    except BlobNotFoundError as error:
        raise SpilledPayloadUnavailableError(claim.key, "the blob store has nothing there") from error
    except Exception as error:
        raise SpilledPayloadUnavailableError(claim.key, f"{type(error).__name__}: {error}") from error
    if len(data) != claim.size:
        raise SpilledPayloadUnavailableError(
            claim.key, f"it has {len(data)} bytes, and {claim.size} were stored"
        )
    try:
        value: Json = json.loads(data)
    except ValueError as error:
        raise SpilledPayloadUnavailableError(claim.key, "it isn't the JSON that was stored") from error
    return value
