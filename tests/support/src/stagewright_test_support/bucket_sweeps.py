"""What a sweep of orphaned blobs has to do with a bucket, by the command and by the function."""

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from typing import Final

import pytest

from stagewright import StageContext, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright.hosting import drive_run, sweep_orphans
from stagewright.ports import BlobStore
from stagewright.system import SystemClock
from stagewright.testing import FakeClock
from stagewright_test_support.buckets import Bucket

__all__ = ["check_sweeps"]

_GONE: Final = [f"workflow-v2/texts/gone-{number}/enlarge/output-1.json" for number in range(5)]
_STRANGE: Final = "workflow-v2/mine.txt"


def _orphans_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stagewright.cli", "blobs", "orphans", *arguments]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=120, check=False, env=dict(os.environ)
    )


async def check_sweeps(
    bucket: Bucket, kind: type[BlobStore], sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """List orphans in an empty bucket, then delete them; a live run's blobs, young ones and a stranger's stay."""
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    url = bucket.url()
    begun, released = asyncio.Event(), asyncio.Event()

    async def enlarge(ctx: StageContext[int]) -> str:
        return "x" * ctx.input

    async def measure(ctx: StageContext[str]) -> int:
        begun.set()
        await released.wait()
        return len(ctx.input)

    stages = define_stage("enlarge", enlarge), define_stage("measure", measure)
    flow = define_workflow("texts", input=int).pipe(stages[0]).pipe(stages[1]).build()
    later = FakeClock(SystemClock().now() + timedelta(days=2))
    async with (
        open_kernel(flow, sqlite_url, blob_store=url, create_schema=True) as kernel,
        open_kernel(flow, sqlite_url, blob_store=url, clock=later) as sweeper,
        asyncio.TaskGroup() as tasks,
    ):
        store = kernel.ports.blob_store
        assert isinstance(store, kind)
        live = (await kernel.dispatch(CreateRun("texts", 100_000))).run_id
        driving = tasks.create_task(drive_run(kernel, live))
        await asyncio.wait_for(begun.wait(), 60)
        needed = [key async for key in store.list("")]
        assert any(live in key for key in needed)
        for key in (*_GONE, _STRANGE):
            await store.put(key, b"1")

        young = await asyncio.to_thread(
            _orphans_command, "--url", sqlite_url, "--blob-store", url, "--delete", "--pause", "0s"
        )
        assert (young.returncode, young.stderr) == (0, "")
        assert f"no orphans among {len(needed) + len(_GONE)} blobs" in young.stdout
        assert "5 blobs without a run left alone, younger than 1 day" in young.stdout
        assert "1 blob left alone that Stagewright has not written" in young.stdout

        listed = await sweep_orphans(sweeper, batch=2, pause=0)
        assert [(blob.key, blob.workflow_id) for blob in listed.orphans] == [(key, "texts") for key in _GONE]
        assert (listed.deleted, listed.not_ours) == (0, 1)
        assert [key async for key in store.list("")] == sorted([*needed, *_GONE, _STRANGE])
        deleted = await sweep_orphans(sweeper, delete=True, batch=2, pause=0)
        assert (deleted.orphans, deleted.deleted) == (listed.orphans, len(_GONE))
        assert [key async for key in store.list("")] == sorted([*needed, _STRANGE])
        released.set()
        assert (await driving).output == 100_000
