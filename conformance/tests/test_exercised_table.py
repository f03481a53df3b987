"""The table of what was exercised."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import pytest
from stagewright.memory import InMemoryBlobStore
from stagewright_conformance import BlobStreamSuite

pytestmark = pytest.mark.conformance_target("a store")


class TestStreams(BlobStreamSuite):
    @pytest.fixture
    def blob_store(self):
        return InMemoryBlobStore()
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_the_table_counts_by_suite_and_target(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_store.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--conformance-table",
        "-p",
        "no:cacheprovider",
        *workers,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    header, row = done.stdout.split("what was exercised")[1].strip("= \n").splitlines()[:2]
    assert header.split() == ["suite", "a", "store"]
    name, passed = row.split()
    assert (name, int(passed) > 5) == ("BlobStreamSuite", True)


def test_no_table_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "test_store.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "what was exercised" not in done.stdout
