from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("flows.py", "'flows.py' is no target; write path/to/file.py:name or package.module:name"),
        (":orders", "is no target"),
        ("gone.py:orders", "there is no file"),
        ("gone.module:orders", "there is no module 'gone'"),
        ("flows.gone:orders", "there is no module 'flows.gone'"),
        ("folder/flows:orders", "a file is written with its .py"),
        (".:orders", "'.' is no module; write path/to/file.py:name or package.module:name"),
        ("..flows:orders", "'..flows' is no module"),
        (
            "./flows:orders",
            "'./flows' is no module; write path/to/file.py:name or package.module:name; a file is",
        ),
        ("flows.py:gone", "flows.py has no 'gone'; it has the workflows idle, labels, orders, waits"),
        ("flows.py:number", "is of type int; it must be a Workflow, a list of them or a registry"),
        ("flows.py:builder", "is a builder; a builder becomes a workflow with .build()"),
        ("flows.py:nothing", "has no workflows"),
        ("flows.py:several", "has 2 workflows; choose one with --workflow ID: orders, labels"),
        ("flows.py:finder", "can't list its workflows; choose with --workflow ID"),
        ("flows.py:WORDS", "has no 'WORDS'"),
    ],
)
def test_a_target_that_is_none_says_why(called: Call, workflows: Path, target: str, problem: str) -> None:
    done = called("diagram", target)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "import a_module_that_is_nowhere\n",
            "ModuleNotFoundError: No module named 'a_module_that_is_nowhere'",
        ),
        ("x = 1\n1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def oops(:\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
    ],
)
def test_a_file_that_can_not_be_imported_says_why_and_where(
    called: Call, tmp_path: Path, source: str, problem: str
) -> None:
    (tmp_path / "broken.py").write_text(source, encoding="utf-8")
    done = called("run", "broken.py:workflow")
    assert done.returncode == 2
    assert "importing broken.py raised " in done.stderr
    assert problem in done.stderr
    assert "broken.py" in done.stderr.partition(problem)[2]
    assert done.stderr.count("\n") == 1


def test_a_file_imports_what_lies_beside_it(called: Call, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    (folder / "beside.py").write_text("ID = 'found'\n", encoding="utf-8")
    # A file called like a module of the standard library stays itself, and so does that module.
    (folder / "json.py").write_text(
        "from beside import ID\nfrom stagewright import StageContext, define_workflow, stage\n"
        "@stage('one')\nasync def one(ctx: StageContext[None]) -> int: return 1\n"
        "workflow = define_workflow(ID, input=None).pipe(one).build()\n",
        encoding="utf-8",
    )
    done = called("run", f"{folder}/json.py:workflow", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_a_workflow_is_drawn(called: Call, workflows: Path) -> None:
    done = called("diagram", "flows.py:several", "--workflow", "labels")
    assert done.returncode == 0
    assert "flowchart" in done.stdout
    assert "price" in done.stdout


@pytest.mark.parametrize("raised", ["SystemExit(0)", "ZeroDivisionError()"])
def test_a_name_that_can_not_be_looked_up_says_why(called: Call, tmp_path: Path, raised: str) -> None:
    (tmp_path / "lazy.py").write_text(f"def __getattr__(name):\n    raise {raised}\n", encoding="utf-8")
    done = called("diagram", "lazy.py:workflow")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"stagewright: looking at lazy.py:workflow raised {raised.partition('(')[0]}"
    )
