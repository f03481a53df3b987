"""What this distribution adds to Stagewright: blobs at `s3://`.

Every `stagewright` command loads this module, and boto3 takes longer to import than all the rest. So whatever needs it
is imported when a URL is opened.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet, ConformanceTarget, hookimpl

__all__ = ["open_bucket", "stagewright_conformance_targets", "stagewright_register_adapters"]


@asynccontextmanager
async def open_bucket(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    """Open a bucket as a blob store, after a look whether it is there.

    Raises:
        InvalidSettingError: If the URL can't be used here.
        BlobAccessDeniedError, BlobStoreRefusedError, BlobStoreUnavailableError: If the bucket refuses a listing, or
            can't be reached.
    """
    from stagewright_blob_s3.blob_store import S3BlobStore

    store = S3BlobStore(url)
    try:
        await store.check()
        yield AdapterSet(blob_store=store)
    finally:
        await store.close()


@hookimpl
def stagewright_register_adapters(registry: AdapterRegistry) -> None:
    """Open `s3://`."""
    registry.add("s3", open_bucket)


async def empty(url: str) -> None:
    """Delete every blob of a store."""
    async with open_bucket(url, AdapterOptions()) as opened:
        store = opened.blob_store
        assert store is not None
        await store.delete_many([key async for key in store.list("")])


@hookimpl
def stagewright_conformance_targets() -> tuple[ConformanceTarget, ...]:
    """A bucket of S3, or of what speaks its protocol."""
    return (
        ConformanceTarget(name="S3", url="s3://{server}", server="s3", lacks=("long_keys",), empty=empty),
    )
