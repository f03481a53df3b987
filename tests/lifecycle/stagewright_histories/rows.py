"""All rows of a store, as its ports give them."""

from collections.abc import Sequence
from typing import Any

from stagewright import Kernel
from stagewright.ports import ForeseesWork
from stagewright.records import AnnotationQuery, LogRecord, RunQuery, RunRecord

__all__ = ["blobs_of", "rows_of"]

_MANY = 1_000


async def rows_of(kernel: Kernel) -> dict[str, Any]:
    """What a store has of runs, by the kind of row; nothing of it is changed."""
    ports = kernel.ports
    runs = await _runs(kernel)
    assert isinstance(ports.persistence, ForeseesWork)
    return {
        "run": {run.id: run for run in runs},
        "run and its stages": await ports.persistence.load_runs([run.id for run in runs]),
        "of run": {run.id: await _of_run(kernel, run.id) for run in runs},
        "tombstone": await ports.persistence.list_tombstones(_MANY),
        "due jobs": await ports.job_transport.depth(),
        "outlook": await ports.persistence.outlook(ports.clock.now()),
        "blob keys": [key async for key in ports.blob_store.list("")],
    }


async def _of_run(kernel: Kernel, run_id: str) -> dict[str, Any]:
    ports = kernel.ports
    return {
        "step": (await ports.run_reader.list_steps(run_id, limit=None, cursor=None)).items,
        "event": await ports.run_reader.list_events(run_id, after=0, limit=_MANY),
        "log line": await _logs(kernel, run_id),
        "signal": await ports.persistence.list_signals(run_id),
        "annotation": await ports.persistence.list_annotations(run_id, AnnotationQuery(limit=_MANY)),
        "job": await ports.job_transport.get_jobs_by_run(run_id),
    }


async def blobs_of(kernel: Kernel) -> dict[str, bytes]:
    """Every blob."""
    store = kernel.ports.blob_store
    return {key: await store.get(key) async for key in store.list("")}


async def _runs(kernel: Kernel) -> Sequence[RunRecord]:
    page = await kernel.ports.run_reader.list_runs(RunQuery(), limit=_MANY, cursor=None)
    return page.items


async def _logs(kernel: Kernel, run_id: str) -> Sequence[LogRecord]:
    page = await kernel.ports.run_reader.list_logs(run_id, level=None, limit=_MANY, cursor=None)
    return page.items
