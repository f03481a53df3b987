"""Writes a blob again and again, each time killed at a later call of the system, and tells what is there then.

Called with a folder and the way of writing; writes one line for each death, and one for the write that nothing ended.
"""

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from stagewright.filesystem.blob_files import BlobFiles

CALLS = ("open", "mkdir", "fsync", "replace", "link", "unlink")
OLD, NEW = b"old" * 50_000, b"new" * 70_000


def main() -> None:
    folder, way = Path(sys.argv[1]), sys.argv[2]
    for last in count():
        files = BlobFiles(folder / str(last))
        if way == "over":
            write(files, OLD, if_absent=False)
        child = os.fork()
        if child == 0:
            die_at(last)
            write(files, NEW, if_absent=way == "absent")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        ending = "killed" if os.WIFSIGNALED(status) else "done"
        sys.stdout.write(f"{ending} {found(files)} {','.join(files.walk(''))}\n")
        sys.stdout.flush()
        if not os.WIFSIGNALED(status):
            return


def write(files: BlobFiles, data: bytes, *, if_absent: bool) -> None:
    blob = files.begin("run/k", "text/plain")
    for start in range(0, len(data), 30_000):
        blob.write(data[start : start + 30_000])
    blob.publish(if_absent=if_absent)


def die_at(last: int) -> None:
    """Let the process be killed before the call of that number, or after it for one half of the numbers."""
    calls = count()

    def deadly(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            number = next(calls)
            if 2 * number == last:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*arguments, **options)
            finally:
                if 2 * number + 1 == last:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in CALLS:
        setattr(os, name, deadly(getattr(os, name)))


def found(files: BlobFiles) -> str:
    if files.written_at("run/k") is None:
        return "nothing"
    with files.open("run/k") as file:
        data = file.read()
    return {OLD: "old", NEW: "new"}.get(data, "half")


main()
