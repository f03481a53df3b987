import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
Call = Callable[..., Any]

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.guarantee("cli.run-to-the-end")
def test_a_workflow_runs_to_its_end(stagewright: Run, workflows: Path, tmp_path: Path) -> None:
    done = stagewright("run", "flows.py:labels", "--input", "name=tea")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"run \S+ of labels", lines[0])
    assert "price: started" in lines
    assert "price: 50% half" in lines
    assert any(re.fullmatch(r"write: completed in [\d.]+ s", line) for line in lines)
    assert re.search(r"price +COMPLETED +1 +\d\d:\d\d:\d\d\.\d{3} +[\d.]+ s", done.stdout)
    assert re.search(r"run \S+ of labels: COMPLETED in [\d.]+ s", done.stdout)
    assert '"label": "2 EUR"' in done.stdout
    assert "file: label.txt (5 bytes)" in done.stdout
    assert "\x1b" not in done.stdout


def test_input_and_config_are_read_as_their_schemas_want_them(called: Call, workflows: Path) -> None:
    options = ["--input", "name=123", "--input", "count=3", "--input", "note=null", "--input", 'tags=["a"]']
    config = ["--config", "price.currency=1", "--config", "price.digits=4"]
    done = called("run", "flows.py:orders", "--quiet", *options, *config)
    assert json.loads(done.stdout) == {
        "label": "4 1",
        "order": {"name": "123", "count": 3, "note": None, "tags": ["a"], "size": "s"},
    }


@pytest.mark.parametrize("source", ["text", "file", "stdin"])
def test_the_input_may_be_one_json_document(
    stagewright: Run, workflows: Path, tmp_path: Path, source: str
) -> None:
    document = '{"name": "tea", "count": 2}'
    (tmp_path / "order.json").write_text(document, encoding="utf-8")
    given = {"text": document, "file": "@order.json", "stdin": "@-"}[source]
    done = stagewright(
        "run", "flows.py:orders", "-q", "--input-json", given, "--input", "count=5", input=document
    )
    assert json.loads(done.stdout)["order"]["count"] == 5


def test_a_workflow_without_input_needs_none(called: Call, workflows: Path) -> None:
    assert called("run", "flows.py:idle", "-q").stdout == "1\n"


@pytest.mark.guarantee("cli.errors-are-one-line")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--input", "count=1"], "$.name"),
        (["--input", "name=x", "--input", "count=many"], "$.count"),
        (["--input", "name=x", "--input", "cuont=1"], "--input cuont: there is no such field; there are"),
        (["--input", "name"], "write key=value"),
        (["--input-json", "{"], "--input-json is no JSON"),
        (["--input-json", "@gone.json"], "gone.json"),
        (["--input-json", "[1]", "--input", "name=x"], "goes with an object"),
        (["--input", "name=x", "--config", "digits=1"], "write stage.key=value"),
        (["--input", "name=x", "--config", "gone.digits=1"], "has no stage 'gone'; it has price"),
        (["--input", "name=x", "--config", "price.gone=1"], "--config price.gone: there is no such field"),
        (["--input", "name=x", "--config", "price.digits=x"], "$.price.digits"),
        (["--input", "name=x", "--timeout", "soon"], "timeout='soon' is not a duration"),
        (
            ["--input", "name=x", "--url", "nowhere://user:secret@x"],
            "no installed adapter opens 'nowhere://user:***@x'",
        ),
        (["--workflow", "gone"], "workflow 'gone' is not found in the registry; this registry has 'orders'"),
        (["--wrong"], "--wrong"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_one_line_and_code_2(
    called: Call, workflows: Path, arguments: list[str], problem: str
) -> None:
    done = called("run", "flows.py:orders", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stagewright: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_failed_run_is_one_line_and_code_1(called: Call, workflows: Path) -> None:
    done = called("run", "flows.py:labels", "--input", "name=bad")
    assert done.returncode == 1
    assert re.fullmatch(
        r"stagewright: run \S+ is FAILED at stage 'price': NonRetryableError: nobody sells bad\n", done.stderr
    )
    assert re.search(r"price +FAILED +1", done.stdout)
    assert re.search(r"write +not reached", done.stdout)
    assert "output" not in done.stdout


def test_a_run_that_takes_too_long_is_given_up(stagewright: Run, workflows: Path) -> None:
    done = stagewright("run", "flows.py:waits", "--input", "name=x", "--timeout", "300ms")
    assert done.returncode == 1
    assert "did not end within 300ms" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.guarantee("cli.interrupt-ends-cleanly")
@pytest.mark.skipif(sys.platform == "win32", reason="signals work another way there")
def test_an_interrupt_ends_cleanly_with_130(workflows: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stagewright.cli", "run", "flows.py:waits", "--input", "name=x"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "waiting").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "stagewright: interrupted\n")


@pytest.mark.guarantee("cli.target-kinds")
@pytest.mark.parametrize(
    "target", ["flows.py:several", "flows.py:registry", "flows.py:finder", "flows:registry"]
)
def test_a_target_may_be_a_list_or_a_registry(called: Call, workflows: Path, target: str) -> None:
    done = called("run", target, "-q", "--workflow", "orders", "--input", "name=tea")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_shows_the_run_live(workflows: Path, on_terminal: Callable[..., tuple[int, str]]) -> None:
    code, text = on_terminal("run", "flows.py:labels", "--input", "name=tea", columns=100)
    assert code == 0, text
    assert "\x1b[" in text
    assert "price: started" not in text
    assert "COMPLETED" in text


def test_the_example_writes_its_report_and_says_where(stagewright: Run, tmp_path: Path) -> None:
    example = ROOT / "examples" / "digest" / "workflow.py"
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "one.md").write_text("Some words in a file.", encoding="utf-8")
    done = stagewright("run", f"{example}:workflow", "--input", "folder=texts")
    assert (done.returncode, done.stderr) == (0, "")
    report = Path("build", "digest", "report.md")
    assert f"report_path: {report}" in done.stdout
    assert "Some" not in (tmp_path / report).read_text(encoding="utf-8").splitlines()[0]


def test_the_example_says_why_a_folder_is_refused(stagewright: Run) -> None:
    example = ROOT / "examples" / "digest" / "workflow.py"
    done = stagewright("run", f"{example}:workflow", "--input", "folder=gone")
    assert done.returncode == 1
    assert "gone is not a folder" in done.stderr
