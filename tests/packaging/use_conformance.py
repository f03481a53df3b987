"""Somebody's adapter in a project of its own, held to the suite in all three ways: `python use_conformance.py`.

It runs on the distributions that the Python which runs it has installed, in a folder outside of any repository.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ADAPTER = """
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stagewright.memory import InMemoryBlobStore
from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet, ConformanceTarget, hookimpl

STORES: dict[str, InMemoryBlobStore] = {}


@asynccontextmanager
async def open_acme(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    yield AdapterSet(blob_store=STORES.setdefault(url, InMemoryBlobStore()))


async def empty(url: str) -> None:
    STORES.pop(url, None)


@hookimpl
def stagewright_register_adapters(registry: AdapterRegistry) -> None:
    registry.add("acme", open_acme)


@hookimpl
def stagewright_conformance_targets() -> list[ConformanceTarget]:
    return [ConformanceTarget(name="Acme", url="acme://shelf", empty=empty)]
"""

TESTS = """
import pytest

from stagewright.memory import InMemoryBlobStore
from stagewright_conformance import (
    BLOB_STORE_SUITES, BlobDateSuite, BlobListingSuite, BlobStreamSuite, BlobSuite, suites_left_out,
)


class Acme:
    @pytest.fixture
    def blob_store(self):
        return InMemoryBlobStore()


class TestBlobs(Acme, BlobSuite):
    pass


class TestDates(Acme, BlobDateSuite):
    pass


class TestListing(Acme, BlobListingSuite):
    pass


class TestStreams(Acme, BlobStreamSuite):
    pass


def test_every_suite_of_the_port_runs():
    assert suites_left_out(globals(), BLOB_STORE_SUITES) == []
"""


def write_project(folder: Path) -> None:
    (folder / "acme_stagewright.py").write_text(ADAPTER, encoding="utf-8")
    (folder / "test_acme.py").write_text(TESTS, encoding="utf-8")
    settings = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
    (folder / "pytest.ini").write_text(settings, encoding="utf-8")
    metadata = folder / "acme_stagewright-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-stagewright\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[stagewright]\nacme = acme_stagewright\n")


def run(folder: Path, *arguments: str) -> str:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "STAGEW"))
    }
    print("$ python -m", *arguments, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nended with {done.returncode}")
    return done.stdout


def passed(folder: Path, file: str) -> dict[str, int]:
    [target] = json.loads((folder / file).read_text(encoding="utf-8"))["targets"]
    return {suite: counts["passed"] for suite, counts in target["suites"].items() if counts["passed"]}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="stagewright scratch ") as name:
        folder = Path(name)
        write_project(folder)
        run(folder, "pytest", "-q", "-p", "no:cacheprovider", "--conformance-json=subclassed.json")
        command = ("stagewright.cli", "conformance", "--port=blob_store")
        run(folder, *command, "acme://mine", "--json=at-url.json")
        listed = run(folder, *command, "--list")
        run(folder, *command, "--target=Acme", "--json=discovered.json")
        ways = [passed(folder, file) for file in ("subclassed.json", "at-url.json", "discovered.json")]
    print(f"passed, by suite: {ways[0]}")
    if "acme://shelf" not in listed or len(ways[0]) != 4 or any(way != ways[0] for way in ways):
        sys.exit(f"the three ways don't exercise the same: {ways}\n{listed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
