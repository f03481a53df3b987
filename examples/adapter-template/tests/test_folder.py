"""What the suite can't know of: URLs, cancelled calls, and processes killed while they write.

Run as a program, this file is the process that is killed.
"""

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from stagewright.errors import InvalidSettingError, TransientError
from stagewright.plugins import AdapterOptions
from stagewright.ports import BlobStore, StepLedger
from stagewright.records import StepRecord

from stagewright_folder.files import name_of
from stagewright_folder.plugin import open_folder

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def step(name: str) -> StepRecord:
    """A step of the stage record `stage`."""
    return StepRecord(
        id=f"record-{name}",
        stage_record_id="stage",
        step_id=name,
        seq=1,
        kind="run",
        status="running",
        created_at=MOMENT,
        updated_at=MOMENT,
    )


def stop_at_sync(number: int) -> None:
    """Let the process stop and say so instead of its `number`-th call of `os.fsync` from now."""
    sync, left = os.fsync, number

    def stopping(fd: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            print("stopped", flush=True)
            signal.pause()
        sync(fd)

    os.fsync = stopping


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[BlobStore, StepLedger]]:
    """Both ports of a folder."""
    async with open_folder(f"folder://{folder}", AdapterOptions()) as adapters:
        assert adapters.blob_store is not None
        assert adapters.step_ledger is not None
        yield adapters.blob_store, adapters.step_ledger


async def write(folder: Path, what: str, number: int) -> None:
    """Put the blob `new`, or claim the step `new`, and stop at a call of `os.fsync`."""
    async with opened(folder) as (blobs, ledger):
        stop_at_sync(number)
        if what == "blob":
            await blobs.put("new", b"new" * 1_000_000)
        else:
            await ledger.claim(step("new"))


async def killed_at_sync(folder: Path, what: str, number: int) -> None:
    """Kill a process that writes something new at one of its calls of `os.fsync`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        str(folder),
        what,
        str(number),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    told = await process.stdout.readline()
    process.kill()
    await process.wait()
    assert told == b"stopped\n"


@pytest.mark.parametrize(
    "url", ["folder://", "folder://host/path", "folder:///path?x=1", "folder:path"]
)
async def test_a_url_without_an_absolute_path_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettingError, match="absolute path"):
        async with open_folder(url, AdapterOptions()):
            pass


async def test_a_missing_folder_is_refused_if_none_may_be_made(tmp_path: Path) -> None:
    url = f"folder://{tmp_path}/missing"
    with pytest.raises(InvalidSettingError, match="is no folder"):
        async with open_folder(url, AdapterOptions(create_schema=False)):
            pass
    assert not (tmp_path / "missing").exists()


async def test_what_cannot_be_looked_at_is_not_said_to_be_missing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as (blobs, _):
        (tmp_path / "blobs").rmdir()
        (tmp_path / "blobs").touch()
        with pytest.raises(TransientError):
            await blobs.has("key")
        with pytest.raises(TransientError):
            await blobs.get("key")


async def test_a_cancelled_call_ends_when_its_effect_is_decided(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, ledger):
        lock = tmp_path / "locks" / name_of("stage")[:2]
        with lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            claim = asyncio.create_task(ledger.claim(step("new")))
            await asyncio.sleep(0)  # it begins
            claim.cancel()
            await asyncio.wait([claim], timeout=0.05)
            assert not claim.done()
        with pytest.raises(asyncio.CancelledError):
            await claim
        assert await ledger.list("stage") == [step("new")]


@pytest.mark.parametrize(("number", "kept"), [(1, b"old"), (2, b"new" * 1_000_000)])
async def test_a_blob_is_whole_after_a_kill(
    tmp_path: Path, number: int, kept: bytes
) -> None:
    async with opened(tmp_path) as (blobs, _):
        await blobs.put("new", b"old")
        await killed_at_sync(tmp_path, "blob", number)
        assert await blobs.get("new") == kept
        assert [key async for key in blobs.list("")] == ["new"]
        assert await blobs.put("new", b"newer")


@pytest.mark.parametrize(("number", "there"), [(1, False), (3, False), (4, True)])
async def test_a_step_is_claimed_or_not_after_a_kill(
    tmp_path: Path, number: int, there: bool
) -> None:
    async with opened(tmp_path) as (_, ledger):
        await ledger.claim(step("old"))
        await killed_at_sync(tmp_path, "step", number)
        names = [found.step_id for found in await ledger.list("stage")]
        assert names == (["new", "old"] if there else ["old"])
        # The lock went with the process.
        assert await ledger.claim(step("new")) == (not there, step("new"))


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
