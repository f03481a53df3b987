"""The schemes `memory` and `file`, which the core itself serves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stagewright.filesystem import FileSystemBlobStore
from stagewright.memory import (
    InMemoryAICallLogger,
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet, ConformanceTarget, PluginSet

__all__ = ["built_in_adapters", "built_in_targets", "installed_adapters", "open_files", "open_memory"]


@asynccontextmanager
async def open_memory(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    """Open a new, empty database in memory, whatever the URL's name; it goes when this is left."""
    database = InMemoryDatabase(clock=options.clock)
    persistence = InMemoryPersistence(database)
    yield AdapterSet(
        persistence=persistence,
        job_transport=InMemoryJobTransport(database, fairness=options.fairness),
        step_ledger=InMemoryStepLedger(database),
        blob_store=InMemoryBlobStore(database),
        run_reader=persistence,
        ai_call_logger=InMemoryAICallLogger(database),
    )


@asynccontextmanager
async def open_files(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    """Open a folder as a blob store; there is nothing to close.

    Raises:
        InvalidSettingError: If the URL names no folder.
    """
    yield AdapterSet(blob_store=FileSystemBlobStore(url))


def built_in_adapters() -> AdapterRegistry:
    """The adapters that need no plugin."""
    registry = AdapterRegistry("stagewright-core")
    registry.add("memory", open_memory)
    registry.add("file", open_files)
    return registry


def built_in_targets() -> tuple[ConformanceTarget, ...]:
    """What of core's own the conformance suite can be pointed at."""
    return (
        ConformanceTarget(name="memory", url="memory://", lacks=("callers_sessions",), opens_anew=True),
        ConformanceTarget(name="files", url="file://{folder}"),
    )


def installed_adapters(plugins: PluginSet) -> AdapterRegistry:
    """The adapters by which `open_kernel` opens URLs: core's own and those of plugins."""
    registry = built_in_adapters()
    registry.include(plugins.adapters())
    return registry
