"""The page about testing is a project: its files are written as it says, and its tests pass."""

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stagewright import Workflow, open_kernel
from stagewright.commands import ClaimPendingRuns, CreateRun

# What this repository has installed besides, and no user of it needs.
LEFT_OUT = [
    f"-pno:{name}"
    for name in (
        "cacheprovider",
        "hypothesispytest",
        "xdist",
        "xdist.looponfail",
        "stagewright_conformance",
        "stagewright_test_support",
    )
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
BLOCK = re.compile(r"^```(?:python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\S+)\n")


def write_project(folder: Path) -> None:
    """Write the files of the page; a block without a name goes on with the file before it."""
    files: dict[str, str] = {}
    name = ""
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        named = NAME.match(block)
        name = named[1] if named else name
        files[name] = f"{files[name]}\n\n{block}" if name in files else block
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def run_tests(folder: Path, *arguments: str, production: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *LEFT_OUT, *arguments]
    environment = {**os.environ, "PRODUCTION_URL": production, "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=environment
    )


def workflow_in(path: Path) -> Workflow:
    spec = importlib.util.spec_from_file_location("orders_of_the_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    workflow = module.orders
    assert isinstance(workflow, Workflow)
    return workflow


async def begin_a_run(workflow: Workflow, url: str) -> None:
    async with open_kernel([workflow], url) as kernel:
        await kernel.dispatch(CreateRun("orders", {"order_id": "17", "amount": 3_000}))
        await kernel.dispatch(ClaimPendingRuns("worker"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orders")
    write_project(folder)
    return folder


@pytest.mark.guarantee("testing.the-page-is-enough")
def test_the_tests_of_the_page_pass(project: Path, sqlite_url: str) -> None:
    asyncio.run(begin_a_run(workflow_in(project / "orders.py"), sqlite_url))
    done = run_tests(project, production=f"{sqlite_url}?mode=ro")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 14 passed" in done.stdout


def test_a_build_that_can_not_carry_the_runs_on_fails_its_tests(project: Path, sqlite_url: str) -> None:
    asyncio.run(begin_a_run(workflow_in(project / "orders.py"), sqlite_url))
    changed = (project / "orders.py").read_text(encoding="utf-8").replace(".pipe(approve)", "")
    (project / "orders.py").write_text(changed, encoding="utf-8")
    try:
        done = run_tests(project, "test_candidate.py", production=f"{sqlite_url}?mode=ro")
    finally:
        write_project(project)
    assert done.returncode == 1, done.stdout + done.stderr
    assert " 2 failed" in done.stdout
    assert "STAGE_REMOVED: the run has stage 'approve' (PENDING)" in done.stdout
