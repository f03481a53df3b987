"""The demo as a stranger runs it: its claims are checked by itself, and here once more from what it leaves."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.guarantee("hosts.demo")
def test_the_demo_survives_the_kill_of_its_worker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stagewright.cli", "demo", "--scratch", str(tmp_path)]
    done = subprocess.run(
        command, cwd=_ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed = re.search(r"worker-1 killed by SIGKILL after (\d+) steps", done.stdout)
    assert killed is not None
    assert int(killed[1]) >= 9
    assert f"None of the {killed[1]} steps that had finished before the kill ran again." in done.stdout
    assert "worker-2 ended the run, and left with exit code 0" in done.stdout
    assert "✗ SIGKILL" in done.stdout
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("# Digest of docs")


def test_the_demo_away_from_the_clone_says_where_to_start_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stagewright.cli", "demo", "--folder", "."]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "examples/digest/workflow.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_demo_leaves_the_default_database_alone_and_needs_documents(tmp_path: Path) -> None:
    scratch, folder = tmp_path / "50%20 off", tmp_path / "few"
    scratch.mkdir()
    folder.mkdir()
    (folder / "one.md").write_text("One document only.")
    (scratch / "stagewright.db").write_text("somebody's runs")
    command = [
        sys.executable,
        "-m",
        "stagewright.cli",
        "demo",
        "--scratch",
        str(scratch),
        "--folder",
        str(folder),
    ]
    done = subprocess.run(
        command, cwd=_ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=50, check=False
    )
    assert (scratch / "stagewright.db").read_text() == "somebody's runs"
    assert (scratch / "demo.db").exists()
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.endswith(f"name a --folder with more text files than {folder}")


def test_a_scratch_folder_that_can_not_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "stagewright.cli", "demo", "--scratch", str(tmp_path / "file" / "x")]
    done = subprocess.run(
        command, cwd=_ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "--scratch" in line
    assert "name a folder that can be written" in line
