"""The payload of a job, for whoever brings jobs to workers by a queue of their own."""

from stagewright.json_values import Json
from stagewright.kernel import Kernel
from stagewright.runtime.job_payloads import load_payload

__all__ = ["unpack_payload"]


async def unpack_payload(kernel: Kernel, payload: dict[str, Json]) -> dict[str, Json]:
    """What a job was enqueued with, also if that was too large to be enqueued and lies in the blob store.

    `ClaimJobs` does this by itself.

    Args:
        kernel: The kernel, or one over the same blob store.
        payload: The payload as it came out of the queue.

    Raises:
        SpilledPayloadUnavailableError: If it lies in the blob store and can't be had; the error names its key.
    """
    return await load_payload(kernel.ports.blob_store, payload)
