"""Blobs in a folder: what the conformance suite can't see from outside."""

import asyncio
import hashlib
import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagewright import open_kernel
from stagewright.errors import (
    BlobNotFoundError,
    DamagedBlobError,
    InvalidSettingError,
    OutcomeUnknownError,
    TransientError,
)
from stagewright.filesystem import FileSystemBlobStore
from stagewright.filesystem.blob_files import BlobFiles
from stagewright.ports import BlobStore, DatesBlobs

KEY = "workflow-v2/flow/run/s1/output-1.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def store(folder: Path) -> FileSystemBlobStore:
    return FileSystemBlobStore(folder)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def keys(store: FileSystemBlobStore, prefix: str = "") -> list[str]:
    return [key async for key in store.list(prefix)]


def test_it_is_what_it_says(store: FileSystemBlobStore) -> None:
    blobs: BlobStore = store
    dates: DatesBlobs = store
    assert isinstance(blobs, BlobStore)
    assert isinstance(dates, DatesBlobs)


@pytest.mark.parametrize("name", ["plain", "with space", "ключ", "per%cent", "#hash", "que?ry"])
async def test_a_url_and_a_path_name_the_same_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for place in (folder.as_uri(), f"file://localhost{quote(folder.as_posix())}", str(folder)):
        assert FileSystemBlobStore(place).folder == folder
    await FileSystemBlobStore(folder.as_uri()).put("k", b"1")
    assert await FileSystemBlobStore(folder).get("k") == b"1"


async def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileSystemBlobStore("blobs")
    monkeypatch.chdir("/")
    await store.put("k", b"1")
    assert files_in(tmp_path) == [tmp_path / "blobs" / "blobs" / "=k"]


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("", "names no folder"),
        (" ", "names no folder"),
        ("a\0b", "names no folder"),
        ("file:///a%00b", "names no folder"),
        ("file://", "is relative"),
        ("file:blobs", "is relative"),
        ("file:///", "root of the file system"),
        ("/", "root of the file system"),
        ("file://blobs/x", "'blobs' in the place of a host"),
        ("file:///blobs?mode=x", "has a query or a fragment"),
        ("file:///blobs#x", "has a query or a fragment"),
        (b"/blobs", "must be the path of a folder"),
        (5, "must be the path of a folder"),
        (None, "must be the path of a folder"),
    ],
)
def test_what_names_no_folder_is_refused_with_the_fix(place: str, problem: str) -> None:
    with pytest.raises(InvalidSettingError, match=problem) as caught:
        FileSystemBlobStore(place)
    assert caught.value.setting == "blob_store"
    assert "file:///var/lib/app/blobs" in str(caught.value) or "%3F" in str(caught.value)


async def test_looking_makes_no_folder(folder: Path, store: FileSystemBlobStore) -> None:
    assert await keys(store) == []
    assert not await store.has("k")
    await store.delete("k")
    with pytest.raises(BlobNotFoundError):
        await store.get("k")
    assert folder.name not in names_in(folder.parent)


async def test_a_file_says_whose_bytes_it_has(folder: Path, store: FileSystemBlobStore) -> None:
    await store.put(KEY, b"\n{}\n", content_type="application/json")
    [file] = files_in(folder)
    assert file.relative_to(folder).as_posix() == "blobs/+workflow-v2/+flow/+run/+s1/=output-1.json"
    head, data = file.read_bytes().split(b"\n", 1)
    assert head == f'{{"stagewright_blob": 1, "content_type": "application/json", "key": "{KEY}"}}'.encode()
    assert data == b"\n{}\n"


@pytest.mark.parametrize(
    ("rest", "problem"), [("", "is a file; name a folder"), ("/a/b", "lies in '.*', which is a file")]
)
async def test_a_file_in_the_place_of_the_folder_is_refused_when_it_is_opened(
    tmp_path: Path, rest: str, problem: str
) -> None:
    (tmp_path / "taken").write_text("x", encoding="utf-8")
    url = (tmp_path / "taken").as_uri() + rest
    with pytest.raises(InvalidSettingError, match=problem):
        async with open_kernel([], "memory://", blob_store=url):
            pass


@pytest.mark.guarantee("files.no-key-leads-out")
@pytest.mark.parametrize(
    "key", ["../out", "/etc/passwd", "a/../../../out", "..", ".", "~/x", "C:\\out", "//host/x"]
)
async def test_no_key_leads_out_of_the_folder(tmp_path: Path, store: FileSystemBlobStore, key: str) -> None:
    await store.put(key, b"1")
    assert names_in(tmp_path) == ["blobs"]
    assert await keys(store) == [key]
    await store.delete(key)
    assert files_in(tmp_path) == []


@pytest.mark.guarantee("files.no-key-leads-out")
@pytest.mark.parametrize("link", ["blobs/+a", "blobs/+a/=b", "blobs", "incoming"])
async def test_no_link_inside_the_folder_is_followed(
    tmp_path: Path, folder: Path, store: FileSystemBlobStore, link: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "+a").mkdir(parents=True)
    for secret in (outside / "=b", outside / "+a" / "=b"):
        secret.write_bytes(b'{"stagewright_blob": 1, "content_type": null, "key": "a/b"}\nsecret')
    (folder / link).parent.mkdir(parents=True)
    (folder / link).symlink_to(outside / "=b" if link.endswith("=b") else outside)
    before = {file: file.read_bytes() for file in files_in(outside)}
    is_read = link != "incoming"
    with pytest.raises(DamagedBlobError if is_read else BlobNotFoundError):
        await store.get("a/b")
    if link == "blobs/+a/=b":
        assert not await store.has("a/b")
        assert await store.put("a/b", b"mine")
        assert await store.get("a/b") == b"mine"
    else:
        with pytest.raises(DamagedBlobError, match="leads to"):
            await store.put("a/b", b"mine")
    if is_read and not link.endswith("=b"):
        for call in (store.delete("a/b"), keys(store, "a/")):
            with pytest.raises(DamagedBlobError):
                await call
    assert {file: file.read_bytes() for file in files_in(outside)} == before


async def test_links_in_a_circle_are_an_error(folder: Path, store: FileSystemBlobStore) -> None:
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "+a").symlink_to(folder / "blobs" / "+a")
    with pytest.raises(DamagedBlobError):
        await store.put("a/b", b"1")


@pytest.fixture
def disk(tmp_path: Path, folder: Path) -> Path:
    (tmp_path / "disk").mkdir()
    folder.symlink_to(tmp_path / "disk")
    return tmp_path / "disk"


async def test_the_folder_itself_may_be_a_link(folder: Path, disk: Path) -> None:
    await FileSystemBlobStore(folder).put("k", b"1")
    assert await FileSystemBlobStore(disk).get("k") == b"1"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no head",
        b"[]\n1",
        b'{"stagewright_blob": 2, "key": "k"}\n1',
        b'{"stagewright_blob": 1, "key": "other"}\n1',
    ],
)
async def test_a_file_that_is_no_blob_of_its_key_is_an_error(
    folder: Path, store: FileSystemBlobStore, content: bytes
) -> None:
    await store.put("k", b"1")
    (folder / "blobs" / "=k").write_bytes(content)
    with pytest.raises(DamagedBlobError, match="'k'"):
        await store.get("k")


async def test_a_folder_or_pipe_in_the_place_of_a_blob_is_an_error(
    folder: Path, store: FileSystemBlobStore
) -> None:
    (folder / "blobs" / "=folder").mkdir(parents=True)
    os.mkfifo(folder / "blobs" / "=pipe")
    for key in ("folder", "pipe"):
        with pytest.raises(DamagedBlobError, match="is no file"):
            await store.get(key)
        assert not await store.has(key)
    assert await keys(store) == []


async def test_what_others_have_put_there_is_not_listed(folder: Path, store: FileSystemBlobStore) -> None:
    await store.put("k", b"1")
    for name in (".DS_Store", "=K", "=a b", "~backup", "~" + "0" * 64, "+file", "lost+found"):
        (folder / "blobs" / name).write_bytes(b"x")
    assert await keys(store) == ["k"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sets(
        st.lists(
            st.sampled_from(["", "a", "a-", "a0", "A", "é", "x" * 250, "x" * 300]), min_size=1, max_size=4
        )
        .map("/".join)
        .filter(lambda key: 1 <= len(key) <= 900),
        max_size=12,
    ),
    st.sampled_from(["", "a", "a/", "/", "x" * 250, "x" * 260 + "/", "x" * 300 + "/a", "a/x"]),
)
async def test_keys_are_listed_in_order_however_long(
    tmp_path_factory: pytest.TempPathFactory, given_keys: set[str], prefix: str
) -> None:
    store = FileSystemBlobStore(tmp_path_factory.mktemp("listing"))
    for key in given_keys:
        await store.put(key, b"1")
    assert await keys(store, prefix) == sorted(key for key in given_keys if key.startswith(prefix))


@pytest.mark.guarantee("files.aborted-writes-leave-nothing")
@pytest.mark.parametrize("cause", [LookupError, asyncio.CancelledError])
async def test_an_aborted_stream_leaves_no_file(
    folder: Path, store: FileSystemBlobStore, cause: type[BaseException]
) -> None:
    async def abort() -> None:
        async with store.open_write("k") as writer:
            await writer.write(b"half" * 100_000)
            raise cause

    with pytest.raises(cause):
        await abort()
    assert files_in(folder) == []


@pytest.mark.guarantee("files.aborted-writes-leave-nothing")
async def test_a_cancelled_call_is_over_when_it_ends(
    folder: Path, store: FileSystemBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = threading.Event(), threading.Event()
    sync = os.fsync

    def held(descriptor: int) -> None:
        reached.set()
        assert go.wait(10)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", held)
    putting = asyncio.create_task(store.put("k", b"1"))
    await asyncio.to_thread(reached.wait, 10)
    for _ in range(3):
        putting.cancel()
        await asyncio.sleep(0)
    assert not putting.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert [file.name for file in files_in(folder)] == ["=k"]


@pytest.mark.guarantee("files.aborted-writes-leave-nothing")
@pytest.mark.parametrize("if_absent", [False, True])
async def test_a_full_disk_leaves_the_old_blob_and_is_transient(
    folder: Path, store: FileSystemBlobStore, monkeypatch: pytest.MonkeyPatch, if_absent: bool
) -> None:
    await store.put("old", b"before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for key in ("old", "new"):
        with pytest.raises(TransientError, match="No space left"):
            await store.put(key, b"after", if_absent=if_absent)
    assert await keys(store) == ["old"]
    assert await store.get("old") == b"before"
    assert [file.name for file in files_in(folder)] == ["=old"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux tells what a descriptor is of")
@pytest.mark.parametrize("if_absent", [False, True])
async def test_bytes_outlast_a_loss_of_power_before_names_do_and_all_new_folders_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, if_absent: bool
) -> None:
    happened = list[str]()
    sync, replace, link = os.fsync, os.replace, os.link

    def synced(descriptor: int) -> None:
        happened.append(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path).as_posix())
        sync(descriptor)

    def named(act: Callable[..., None]) -> Callable[..., None]:
        def do(*arguments: object) -> None:
            act(*arguments)
            happened.append("named")

        return do

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named(replace))
    monkeypatch.setattr(os, "link", named(link))
    store = FileSystemBlobStore(tmp_path / "new" / "place")
    await store.put("a/k", b"1", if_absent=if_absent)
    at = happened.index("named")
    assert [name for name in happened[:at] if name.endswith(".part")]
    assert set(happened[:at]) > {".", "new"}
    assert happened[at + 1 :] == ["new/place/blobs/+a", "new/place/blobs", "new/place"]


async def test_a_blob_that_may_be_lost_with_the_power_is_no_success(
    store: FileSystemBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: BlobFiles, path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(BlobFiles, "sync_folders", broken)
    with pytest.raises(OutcomeUnknownError, match="Input/output error"):
        await store.put("k", b"1")


async def test_a_place_that_becomes_a_file_is_transient(tmp_path: Path) -> None:
    store = FileSystemBlobStore(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TransientError, match="couldn't write a blob"):
        await store.put("k", b"1")


async def test_what_lost_processes_were_writing_is_removed_after_a_day(folder: Path) -> None:
    incoming = folder / "incoming"
    incoming.mkdir(parents=True)
    for name, age in (("old.part", 90_000), ("new.part", 3_600), ("notes.txt", 90_000)):
        (incoming / name).write_bytes(b"half")
        then = time.time() - age
        os.utime(incoming / name, (then, then))
    await FileSystemBlobStore(folder).put("k", b"1")
    assert [file.name for file in files_in(folder)] == ["=k", "new.part", "notes.txt"]


async def test_empty_folders_go_with_their_last_blob(folder: Path, store: FileSystemBlobStore) -> None:
    await store.put("w/r1/s/a", b"1")
    await store.put("w/r2/s/a", b"1")
    await store.delete("w/r1/s/a")
    assert names_in(folder / "blobs" / "+w") == ["+r2"]
    await store.delete_many(["w/r2/s/a", "w/r2/s/none"])
    assert names_in(folder / "blobs") == []


@pytest.mark.guarantee("files.every-key-apart")
async def test_no_blob_is_lost_to_who_removes_its_folder_as_empty(
    store: FileSystemBlobStore, folder: Path
) -> None:
    rival = FileSystemBlobStore(folder)

    async def write(number: int) -> None:
        for turn in range(15):
            await store.put(f"w/r/{number}-{turn}", b"1")
            await rival.delete(f"w/r/{number}-{turn}")
        await store.put(f"w/r/{number}", b"kept")

    await asyncio.gather(*(write(number) for number in range(6)))
    assert await keys(store) == [f"w/r/{number}" for number in range(6)]


async def test_a_folder_that_goes_away_while_it_is_made_is_made_again(
    store: FileSystemBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("there", b"1")
    make, removed = Path.mkdir, 3

    def make_what_is_removed(
        self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False
    ) -> None:
        nonlocal removed
        if removed and "incoming" not in self.parts:
            removed -= 1
            raise FileExistsError(17, "File exists", str(self))
        make(self, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", make_what_is_removed)
    assert await store.put("w/r/k", b"kept")
    assert (removed, await store.get("w/r/k")) == (0, b"kept")


@pytest.mark.guarantee("files.streams-hold-one-piece")
async def test_a_large_artifact_passes_through_in_pieces(store: FileSystemBlobStore) -> None:
    piece, count = b"x" * (1 << 18), 96
    digest = hashlib.sha256()
    tracemalloc.start()
    try:
        async with store.open_write("k") as writer:
            for _ in range(count):
                await writer.write(piece)
        async with store.open_read("k") as reader:
            while part := await reader.read(len(piece)):
                digest.update(part)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert digest.digest() == hashlib.sha256(piece * count).digest()
    assert peak < 8 * len(piece)


async def test_a_reader_keeps_what_it_has_opened(store: FileSystemBlobStore) -> None:
    await store.put("k", b"old" * 1_000)
    async with store.open_read("k") as reader:
        assert await reader.read(3) == b"old"
        await store.put("k", b"new")
        await store.delete("k")
        assert await reader.read() == b"old" * 999


async def test_no_file_is_worked_on_in_the_threads_of_event_loops(
    store: FileSystemBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, worked = threading.get_ident(), set[int]()
    for name in ("open", "fsync", "replace", "link", "unlink", "mkdir", "scandir", "lstat", "stat"):
        real = getattr(os, name)

        def watched(*arguments: object, real: object = real, **options: object) -> object:
            worked.add(threading.get_ident())
            return real(*arguments, **options)  # type: ignore[operator]  # a function of os

        monkeypatch.setattr(os, name, watched)
    await store.put("a/k", b"1", if_absent=True)
    await store.get("a/k")
    await store.has("a/k")
    async with store.open_write("a/k") as writer:
        await writer.write(b"2")
    async with store.open_read("a/k") as reader:
        await reader.read()
    await keys(store)
    await store.delete_many(["a/k"])
    assert worked
    assert loop not in worked
