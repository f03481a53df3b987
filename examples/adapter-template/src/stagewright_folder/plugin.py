"""What this distribution adds to Stagewright: `folder:///path`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stagewright.errors import InvalidSettingError
from stagewright.plugins import (
    AdapterOptions,
    AdapterRegistry,
    AdapterSet,
    ConformanceTarget,
    hookimpl,
    redacted,
)

from stagewright_folder.blob_store import FolderBlobStore
from stagewright_folder.files import in_thread, make_folders
from stagewright_folder.step_ledger import FolderStepLedger


@asynccontextmanager
async def open_folder(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    """Open a folder as a blob store and a step ledger; made unless `create_schema` is False.

    Raises:
        InvalidSettingError: If the URL isn't `folder://` and an absolute path, or there is no such folder to use.
        TransientError: If the folder can't be made.
    """
    parts = urlsplit(url)
    folder = Path(unquote(parts.path))
    if parts.netloc or parts.query or parts.fragment or not folder.is_absolute():
        problem = "must be folder:// and an absolute path, as in folder:///var/runs"
        raise InvalidSettingError("url", redacted(url), problem)
    if options.create_schema is False and not await in_thread(folder.is_dir):
        problem = "is no folder; make it, or leave create_schema out"
        raise InvalidSettingError("url", redacted(url), problem)
    await in_thread(make_folders, folder)
    yield AdapterSet(
        blob_store=FolderBlobStore(folder),
        step_ledger=FolderStepLedger(folder),
    )


@hookimpl
def stagewright_register_adapters(registry: AdapterRegistry) -> None:
    """Open `folder://`."""
    registry.add("folder", open_folder)


@hookimpl
def stagewright_conformance_targets() -> list[ConformanceTarget]:
    """A new folder for each test."""
    return [ConformanceTarget(name="folder", url="folder://{folder}")]
