"""The plugin in somebody's pytest, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

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

TESTS = """
import asyncio

import pytest

from stagewright import StageContext, define_workflow, stage
from stagewright.testing import FakeClock, Harness


@stage("divide")
async def divide(ctx: StageContext[int]) -> int:
    await ctx.step.sleep("week", "7d")
    return 100 // ctx.input


flow = define_workflow("division", input=int).pipe(divide).build()


def test_that_passes(stagewright_harness):
    harness = stagewright_harness(flow, clock=FakeClock(), max_ticks=100)
    assert isinstance(harness, Harness)
    assert asyncio.run(harness.run("division", 4)).output == 25


def test_that_fails(stagewright_harness):
    first, second = stagewright_harness(flow), stagewright_harness([flow])
    assert asyncio.run(second.run("division", 5)).output == 20
    assert asyncio.run(first.run("division", 0)).status == "COMPLETED"


def test_that_tells_by_itself(stagewright_harness):
    asyncio.run(stagewright_harness(flow).run("division", 0)).assert_status("COMPLETED")


def test_without_runs(stagewright_harness):
    stagewright_harness(flow)
    raise ValueError("nothing to show")


@pytest.fixture
def divided(stagewright_harness):
    return asyncio.run(stagewright_harness(flow).run("division", 0)).output["nothing"]


def test_whose_fixture_fails(divided):
    pass


def test_without_harness():
    raise ValueError("nothing to show")


class Registry:
    known = {"division": flow}

    def get(self, id):
        return self.known[id]


def test_whose_runs_can_not_be_read(stagewright_harness):
    registry = Registry()
    harness = stagewright_harness(registry)
    asyncio.run(harness.start("division", 1))
    registry.known = {}
    raise ValueError("what the test is about")
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *LEFT_OUT, "-o", "addopts=", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("project")
    (folder / "test_division.py").write_text(TESTS, encoding="utf-8")
    done = run_pytest(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_the_fixture_makes_harnesses(output: str) -> None:
    assert "5 failed, 1 passed, 1 error" in output


@pytest.mark.guarantee("testing.failed-tests-show-their-runs")
def test_a_failed_test_shows_what_its_runs_did(output: str) -> None:
    failure = output.partition("test_that_fails")[2].partition("test_that_tells_by_itself")[0]
    assert failure.count("stagewright runs") == 2
    assert "of division: COMPLETED, 7d after it was created" in failure
    assert "stage divide: FAILED, attempt 3: ZeroDivisionError" in failure
    assert "step 'week' (sleep) completed" in failure
    # The traceback of the body, without the engine's own frames.
    shown = failure.partition("STAGE_FAILED in stage 'divide'")[2]
    assert "return 100 // ctx.input" in shown
    assert "runtime" not in shown


def test_what_is_told_already_is_not_shown_again(output: str) -> None:
    failure = output.partition("_ test_that_tells_by_itself _")[2].partition("_ test_without_runs _")[0]
    assert "is FAILED, and COMPLETED is expected" in failure
    assert "stagewright runs" not in failure
    assert failure.count("workflow:failed") == 1
    silent = output.partition("_ test_without_runs _")[2].partition("_ test_whose_runs_can_not_be_read _")[0]
    assert "stagewright runs" not in silent


def test_a_failed_fixture_shows_them_too(output: str) -> None:
    failure = output.partition("_ ERROR at setup of test_whose_fixture_fails _")[2].partition(
        "_ test_that_fails _"
    )[0]
    assert failure.count("stagewright runs") == 1
    assert "stage divide: FAILED" in failure


def test_runs_that_can_not_be_read_keep_no_failure_from_being_reported(output: str) -> None:
    failure = output.partition("_ test_whose_runs_can_not_be_read _")[2]
    assert "ValueError: what the test is about" in failure
    assert "they can't be told: KeyError: 'division'" in failure


@pytest.mark.guarantee("testing.pytest-is-no-dependency")
def test_only_the_plugin_imports_pytest() -> None:
    check = "import stagewright, stagewright.testing, sys; sys.exit('_pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0
