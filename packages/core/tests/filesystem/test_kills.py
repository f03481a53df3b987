"""Processes that are killed while they write a blob to a folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from stagewright.filesystem import FileSystemBlobStore

pytestmark = pytest.mark.slow


def written_and_killed(folder: Path, way: str) -> list[list[str]]:
    """What `killed_writer.py` says, line by line: how it ended, what is there, and what is listed."""
    writer = Path(__file__).with_name("killed_writer.py")
    done = subprocess.run(
        [sys.executable, writer, folder, way], capture_output=True, text=True, timeout=60, check=True
    )
    return [line.split(" ") for line in done.stdout.splitlines()]


@pytest.mark.guarantee("files.killed-writers-leave-old-or-new")
@pytest.mark.parametrize(("way", "before"), [("over", "old"), ("new", "nothing"), ("absent", "nothing")])
async def test_at_whatever_call_a_writer_is_killed_the_old_blob_is_there_or_the_new_one(
    tmp_path: Path, way: str, before: str
) -> None:
    *deaths, survivor = written_and_killed(tmp_path, way)
    assert survivor == ["done", "new", "run/k"]
    assert len(deaths) > 12
    found = [death[1] for death in deaths]
    turn = found.index("new")
    assert found == [before] * turn + ["new"] * (len(found) - turn), "whole, and once it is there it stays"
    assert {death[2] for death in deaths} == {"run/k"} if before == "old" else {"", "run/k"}

    # Whatever was left on its way, the next one writes as if nothing had been.
    for number in range(len(deaths)):
        store = FileSystemBlobStore(tmp_path / str(number))
        assert await store.put("run/k", b"next")
        assert await store.get("run/k") == b"next"
        assert [key async for key in store.list("")] == ["run/k"]
