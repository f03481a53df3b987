"""Files that appear, change and go in one step each."""

import asyncio
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from stagewright.errors import OutcomeUnknownError, TransientError

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do what blocks outside of the event loop; what the system refuses now may succeed another time.

    A call that is cancelled ends when its thread does: by then it has taken effect, or never will.
    """
    loop = asyncio.get_running_loop()
    working = loop.run_in_executor(None, partial(work, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    try:
        return working.result()
    except OSError as error:
        raise TransientError(f"the folder can't be used: {error}") from error


def make_folders(folder: Path) -> None:
    """Make what is missing of a store."""
    for name in ("blobs", "steps", "records", "locks", "unfinished"):
        (folder / name).mkdir(parents=True, exist_ok=True)


def name_of(text: str) -> str:
    """A file name for any text: no file system takes all of them, and some don't tell a from A."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


@contextmanager
def unfinished_file(folder: Path) -> Iterator[IO[bytes]]:
    """A file in the same file system that nobody reads; its name is gone on leaving, whatever happens."""
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


def publish(file: IO[bytes], path: Path, *, if_absent: bool = False) -> bool:
    """Let a finished file appear at a path, in one step; False if `if_absent` and there is one already."""
    file.flush()
    os.fsync(file.fileno())
    if if_absent:
        try:
            os.link(file.name, path)
        except FileExistsError:
            return False
    else:
        Path(file.name).replace(path)
    sync_folder_of(path)
    return True


def sync_folder_of(path: Path) -> None:
    """Make what became of a name outlast the machine."""
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        problem = f"{path.name} is changed, unless the machine stops: {error}"
        raise OutcomeUnknownError(problem) from error


def read_or_none(path: Path) -> bytes | None:
    """What is published at a path; None if nothing is."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def remove(path: Path) -> None:
    """Remove what is published at a path; nothing happens if nothing is."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_folder_of(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep out who locks the same path, in this process and others; the system ends it with the process."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
