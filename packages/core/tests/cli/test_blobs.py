"""`stagewright blobs orphans`: what it shows, what it deletes, and what it refuses."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagewright.filesystem import FileSystemBlobStore

pytest.importorskip("stagewright_persistence_sqlalchemy")

Called = Callable[..., Any]
URL = "sqlite:///runs.db"
GONE = [f"workflow-v2/orders/gone-{number}/price/output-1.json" for number in (1, 2)]


@pytest.fixture
def run_id(called: Called, workflows: Path) -> str:
    """The id of a run in a new database."""
    assert called("run", "flows.py:orders", "--input", "name=pen", "--url", URL, "-q").returncode == 0
    [row] = [line for line in called("runs", "list", "--url", URL).stdout.splitlines() if "COMPLETED" in line]
    return str(row.split()[0])


@pytest.fixture
def folder(tmp_path: Path, run_id: str) -> Path:
    """A folder with old blobs: two orphans, one of the run, and one that somebody else put there; and a new orphan."""
    folder = tmp_path / "blobs"
    fill(folder, *GONE, f"workflow-v2/orders/{run_id}/price/output-1.json", "workflow-v2/mine.txt")
    then = time.time() - 2 * 86_400
    for path in (folder / "blobs").rglob("=*"):
        os.utime(path, (then, then))
    fill(folder, "workflow-v2/orders/new/price/output-1.json")
    return folder


def fill(folder: Path, *keys: str) -> None:
    async def put() -> None:
        for key in keys:
            await FileSystemBlobStore(folder).put(key, b"1")

    asyncio.run(put())


def keys_in(folder: Path) -> list[str]:
    async def read() -> list[str]:
        return [key async for key in FileSystemBlobStore(folder).list("")]

    return asyncio.run(read())


@pytest.mark.parametrize("place", ["nope/x.json", "report.json/x.json"])
def test_nothing_is_deleted_whose_report_cannot_be_written(called: Called, folder: Path, place: str) -> None:
    before = keys_in(folder)
    Path("report.json").write_text("of another time", encoding="utf-8")
    stores = ("--url", URL, "--blob-store", folder.as_uri())
    refused = called("blobs", "orphans", *stores, "--delete", "--json", place)
    assert refused.returncode != 0
    assert f"--json '{place}' can't be written" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert keys_in(folder) == before
    assert Path("report.json").read_text(encoding="utf-8") == "of another time"


@pytest.mark.guarantee("orphans.by-the-command")
def test_orphans_are_listed_and_with_delete_removed(called: Called, folder: Path) -> None:
    before = keys_in(folder)
    stores = ("--url", URL, "--blob-store", folder.as_uri())
    listed = called("blobs", "orphans", *stores, "--json", "report.json")
    assert (listed.returncode, listed.stderr) == (0, "")
    rows = [line.split()[:3] for line in listed.stdout.splitlines() if "gone-" in line]
    assert rows == [["gone-1", "orders", "1"], ["gone-2", "orders", "1"]]
    assert "2 orphans of 2 runs; --delete removes them" in listed.stdout
    assert "1 blob without a run left alone, younger than 1 day" in listed.stdout
    assert "1 blob left alone that Stagewright has not written" in listed.stdout
    assert keys_in(folder) == before
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert [blob["key"] for blob in report["orphans"]] == GONE
    assert {name: report[name] for name in ("deleted", "looked_at", "too_new", "not_ours", "has_more")} == {
        "deleted": 0,
        "looked_at": 4,
        "too_new": 1,
        "not_ours": 1,
        "has_more": False,
    }

    deleted = called("blobs", "orphans", *stores, "--delete", "--json", "report.json")
    assert deleted.returncode == 0
    assert "2 orphans of 2 runs; deleted 2" in deleted.stdout
    assert json.loads(Path("report.json").read_text(encoding="utf-8"))["deleted"] == 2
    assert keys_in(folder) == [key for key in before if key not in GONE]
    again = called("blobs", "orphans", *stores, "--delete")
    assert (again.returncode, "no orphans among 2 blobs" in again.stdout) == (0, True)


def test_blobs_are_at_the_url_unless_another_is_named(
    called: Called, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no orphans among 0 blobs" in called("blobs", "orphans", "--url", URL).stdout
    monkeypatch.setenv("STAGEWRIGHT_URL", URL)
    monkeypatch.setenv("STAGEWRIGHT_BLOB_STORE", folder.as_uri())
    assert "2 orphans of 2 runs" in called("blobs", "orphans").stdout
    limited = called("blobs", "orphans", "--limit", "1")
    assert "1 orphan of 1 run" in limited.stdout
    assert "there may be more; --limit shows them" in limited.stdout


def test_a_database_that_knows_none_of_the_runs_deletes_nothing(
    called: Called, folder: Path, workflows: Path
) -> None:
    other = "sqlite:///other.db"
    assert called("run", "flows.py:orders", "--input", "name=pen", "--url", other, "-q").returncode == 0
    before = keys_in(folder)
    stores = ("--url", other, "--blob-store", folder.as_uri(), "--delete")
    refused = called("blobs", "orphans", *stores)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "has none of these runs, so nothing was deleted" in refused.stderr
    assert keys_in(folder) == before
    assert called("blobs", "orphans", *stores, "--all-unknown").returncode == 0
    assert keys_in(folder) == ["workflow-v2/mine.txt", "workflow-v2/orders/new/price/output-1.json"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--url", "memory://"), 2, "a store in memory ends with its process"),
        (("--url", "sqlite:///none.db"), 1, "there is no such file as sqlite:///none.db names"),
        (("--url", URL, "--blob-store", "file://blobs"), 2, "in the place of a host"),
        (("--url", URL, "--blob-store", "tape://x"), 2, "tape"),
        (("--url", URL, "--min-age", "1m"), 2, "at least 10 minutes"),
        (("--url", URL, "--min-age", "old"), 2, "--min-age"),
        (("--url", URL, "--limit", "0"), 2, "--limit"),
        (("--url", URL, "--batch", "x"), 2, "--batch"),
        (("--url", URL, "--pause", "-1s"), 2, "--pause"),
    ],
)
def test_what_is_wrong_is_one_line(
    called: Called, run_id: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = called("blobs", "orphans", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


LARGE = """
from typing import Any

from stagewright import StageContext, define_workflow, stage


@stage("large")
async def large(ctx: StageContext[Any]) -> str:
    return "x" * 100_000


flow = define_workflow("flow", input=Any).pipe(large).build()
"""


@pytest.mark.guarantee("files.opened-by-url")
def test_a_run_keeps_large_values_where_it_is_told_to(called: Called, tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(LARGE, encoding="utf-8")
    stores = ("--url", URL, "--blob-store", (tmp_path / "large values").as_uri())
    done = called("run", "large.py:flow", "--input-json", "1", "-q", *stores)
    assert (done.returncode, json.loads(done.stdout)) == (0, "x" * 100_000)
    [key] = keys_in(tmp_path / "large values")
    assert key.startswith("workflow-v2/flow/")
    assert "no orphans among 1 blob" in called("blobs", "orphans", *stores).stdout
