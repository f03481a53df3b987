"""Right use is inferred and wrong use is refused, by mypy and by basedpyright alike."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stagewright import definitions

CASES = Path(__file__).parent / "typing_cases"
SOURCE = Path(definitions.__file__).parents[2]

Places = set[tuple[str, int]]


def expected() -> Places:
    return {
        (file.name, number)
        for file in CASES.glob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if line.endswith("# wrong")
    }


def checked(*command: str) -> str:
    environment = {**os.environ, "MYPYPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode in (0, 1), done.stderr + done.stdout
    return done.stdout


def assert_same(found: Places, report: str) -> None:
    assert found - expected() == set(), f"right use was refused:\n{report}"
    assert expected() - found == set(), f"wrong use was let through:\n{report}"


@pytest.mark.guarantee("definitions.types-checked")
def test_mypy_infers_right_use_and_refuses_wrong_use(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    report = checked(
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={tmp_path}",
        "--output=json",
        "--python-version=3.11",
        str(CASES),
    )
    found = [json.loads(line) for line in report.splitlines() if line.startswith("{")]
    errors = [one for one in found if one["severity"] == "error"]
    assert_same({(Path(one["file"]).name, one["line"]) for one in errors}, report)


@pytest.mark.guarantee("definitions.types-checked")
def test_basedpyright_infers_right_use_and_refuses_wrong_use(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright")
    settings = {
        "include": [str(CASES)],
        "extraPaths": [str(SOURCE)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    command = ("basedpyright", "--outputjson", f"--project={project}", f"--pythonpath={sys.executable}")
    report = json.loads(checked(*command))
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    found = {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors}
    assert_same(
        found,
        json.dumps(
            [(one["file"][-20:], one["range"]["start"]["line"] + 1, one["message"]) for one in errors],
            indent=1,
        ),
    )
