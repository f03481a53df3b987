"""The runs of a harness."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from stagewright.kernel import Kernel
from stagewright.records import RunRecord
from stagewright.status import Status

__all__ = ["all_run_ids", "each_run"]

_PAGE: Final = 200


async def each_run(kernel: Kernel, *, statuses: Collection[Status] | None = None) -> AsyncIterator[RunRecord]:
    """The runs of a kernel, the newest first."""
    cursor: str | None = None
    while True:
        page = await kernel.runs.list(statuses=statuses, limit=_PAGE, cursor=cursor)
        for run in page.items:
            yield run
        cursor = page.next_cursor
        if cursor is None:
            return


async def all_run_ids(kernel: Kernel, followed: Sequence[str]) -> list[str]:
    """The runs that a test has named, in that order, then those that others have created, the oldest first."""
    others = [run.id async for run in each_run(kernel) if run.id not in followed]
    return [*followed, *reversed(others)]
