"""`stagewright conformance`: what it runs, what it says, and what it never deletes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stagewright import StageContext, define_workflow, open_kernel, stage
from stagewright.cli.application import run_application
from stagewright.commands import CreateRun
from stagewright_persistence_sqlalchemy.plugin import contents

Run = Callable[..., subprocess.CompletedProcess[str]]
Refused = Callable[..., tuple[int, str]]

# What somebody's own tests may be set up with; none of it may reach the suite.
OWN_SETTINGS = """
[tool.pytest.ini_options]
addopts = "--no-such-option"
asyncio_mode = "auto"
filterwarnings = ["error"]
python_classes = "Nothing"
"""
OWN_CONFTEST = "raise RuntimeError('this is for the tests of the project')"

BROKEN_PLUGIN = """
from contextlib import asynccontextmanager

from stagewright.memory import InMemoryBlobStore, InMemoryDatabase, InMemoryJobTransport, InMemoryStepLedger
from stagewright.plugins import AdapterSet, hookimpl

DATABASES = {}


class KeepsTheFirst(InMemoryBlobStore):
    async def put(self, key, data, *, if_absent=False):
        return await super().put(key, data, if_absent=True)


@asynccontextmanager
async def open_broken(url, options):
    yield AdapterSet(blob_store=KeepsTheFirst())


@asynccontextmanager
async def open_apart(url, options):
    database = DATABASES.setdefault(url, InMemoryDatabase())
    yield AdapterSet(step_ledger=InMemoryStepLedger(database), job_transport=InMemoryJobTransport(database))


@hookimpl
def stagewright_register_adapters(registry):
    registry.add("broken", open_broken)
    registry.add("apart", open_apart)
"""


@stage("one")
async def one(ctx: StageContext[None]) -> int:
    return 1


FLOW = define_workflow("flow", input=None).pipe(one).build()


@pytest.fixture
def conformance(tmp_path: Path) -> Run:
    """Runs the command in a process and a folder of its own."""

    def run(
        *arguments: str, environment: Mapping[str, str] | None = None, within: float = 120
    ) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STAGEWRIGHT_")}
        return subprocess.run(
            [sys.executable, "-m", "stagewright.cli", "conformance", *arguments],
            cwd=tmp_path,
            env={**inherited, **(environment or {})},
            capture_output=True,
            encoding="utf-8",
            timeout=within,
            check=False,
        )

    return run


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Refused]:
    """Runs the command in this process, for what comes to no test: its exit code and what it told."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        code = run_application(["conformance", *arguments])
        out, err = capsys.readouterr()
        assert out == ""
        return code, err

    yield run
    sys.modules.pop("broken_plugin", None)


@pytest.fixture
def broken_adapter(tmp_path: Path) -> dict[str, str]:
    """Installs an adapter that breaks one clause; the environment in which it is found."""
    site = tmp_path / "site"
    metadata = site / "broken-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[stagewright]\nbroken = broken_plugin\n")
    (site / "broken_plugin.py").write_text(BROKEN_PLUGIN)
    return {"PYTHONPATH": str(site)}


async def runs_at(url: str, *, create: bool = False) -> int:
    async with open_kernel(FLOW, url) as kernel:
        if create:
            await kernel.dispatch(CreateRun("flow", None))
        return len((await kernel.runs.list()).items)


def of_target(report: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [target for target in report["targets"] if target["name"] == name]
    return dict(found)


@pytest.mark.guarantee("testing.the-suite-runs-at-a-url")
def test_all_suites_that_match_run_at_each_url_and_the_report_says_what_was_exercised(
    conformance: Run, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(OWN_SETTINGS)
    (tmp_path / "conftest.py").write_text(OWN_CONFTEST)
    file = "sqlite:///{folder}/a.db"
    chosen = "TestDefinitionSuite or TestBorrowedSessionSuite or test_different_rows_do_not_wait"
    done = conformance(
        "memory://",
        file,
        "-k",
        chosen,
        "--json=report.json",
        "--markdown=report.md",
        environment={"PYTEST_ADDOPTS": "--no-such-option", "PYTEST_PLUGINS": "no_such_plugin"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "conformance: what was exercised" in done.stdout
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["conforming"]
    assert [target["name"] for target in report["targets"]] == ["memory://", file]
    memory, sqlite = of_target(report, "memory://"), of_target(report, file)
    assert memory["suites"]["DefinitionSuite"]["passed"] == sqlite["suites"]["DefinitionSuite"]["passed"] > 5
    assert memory["capabilities"]["concurrent_writers"]["passed"] == 1
    assert sqlite["capabilities"]["concurrent_writers"] == {
        "passed": 0,
        "gap": 1,
        "failed": 0,
        "not_exercised": 0,
    }
    left_out = {each["suite"]: each["reason"] for each in sqlite["not_exercised"]}
    assert "override `open_session`" in left_out["BorrowedSessionSuite"]
    head, line, *rows = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    assert head == f"| suite | memory:// | {file} |"
    assert line == "| --- | --- | --- |"
    assert any(row.startswith("| DefinitionSuite | ") for row in rows)


@pytest.mark.guarantee("testing.the-suite-deletes-nothing-unasked")
def test_a_store_with_runs_is_refused_unless_it_may_be_erased(
    conformance: Run, refused: Refused, tmp_path: Path
) -> None:
    url = f"sqlite:///{(tmp_path / 'mine.db').as_posix()}"
    assert asyncio.run(runs_at(url, create=True)) == 1
    other = f"sqlite:///{(tmp_path / 'other.db').as_posix()}"
    # One store of several is enough, and those before it are left alone too.
    for arguments in ([url], [other, url], [other, f"--blob-store={url}"]):
        code, told = refused(*arguments)
        assert code == 2
        assert "mine.db holds rows in " in told
        assert "--erase" in told
        assert len(told.splitlines()) == 1
    assert not (tmp_path / "other.db").exists()
    assert asyncio.run(runs_at(url)) == 1
    erased = conformance(url, "--erase", "-k", "TestDefinitionSuite")
    assert erased.returncode == 0, erased.stdout + erased.stderr
    # Nothing is left of the tests either, so the next time needs no --erase.
    assert asyncio.run(contents(url)) is None


@pytest.mark.guarantee("testing.broken-clauses-are-named")
def test_a_clause_that_is_broken_is_named_with_its_test(
    conformance: Run, broken_adapter: dict[str, str], tmp_path: Path
) -> None:
    arguments = ("broken://{folder}", "--port=blob_store", "--port=step_ledger", "-k", "TestBlobSuite")
    done = conformance(*arguments, "--json=report.json", environment=broken_adapter)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "failed" in done.stderr.splitlines()[-1]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    target = of_target(report, "broken://{folder}")
    assert not report["conforming"]
    assert target["suites"]["BlobSuite"]["passed"] > 5
    assert target["failures"]
    for failure in target["failures"]:
        assert failure["clause"].startswith("`put`")
        assert f"BlobSuite.{failure['test']} on broken://{{folder}}: {failure['clause']}" in done.stdout
    reasons = {left["suite"]: left["reason"] for left in target["not_exercised"]}
    assert reasons["StepLedgerSuite"] == "the URL serves no step_ledger"
    assert reasons["RunSuite"] == "only blob_store, step_ledger was asked for"
    told = "StepEnlistmentSuite, StepLedgerSuite on broken://{folder}: the URL serves no step_ledger"
    assert told in done.stdout


@pytest.mark.guarantee("testing.one-port-is-enough")
@pytest.mark.parametrize(
    "beside",
    [
        pytest.param((), id="alone"),
        pytest.param(
            ("--step-ledger=apart://{folder}", "--job-transport=apart://{folder}"),
            id="beside-memory",
            marks=pytest.mark.wide,
        ),
    ],
)
def test_a_store_without_runs_is_held_to_all_that_needs_no_common_database(
    conformance: Run, broken_adapter: dict[str, str], tmp_path: Path, beside: tuple[str, ...]
) -> None:
    url = "memory://" if beside else "apart://{folder}"
    suites = "Step or JobQueueSuite or TransportEnlistment or FairClaim or DeliveredJob"
    chosen = f"({suites}) and not Listing and not Paging"
    arguments = (url, *beside, "--port=step_ledger", "--port=job_transport", "-k", chosen)
    done = conformance(*arguments, "--json=report.json", environment=broken_adapter)
    assert done.returncode == 0, done.stdout + done.stderr
    [target] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["targets"]
    for suite in ("StepLedgerSuite", "JobQueueSuite"):
        counts = target["suites"][suite]
        assert (counts["passed"] > 20, counts["not_exercised"]) == (True, 0)
    left = {each["suite"]: each["reason"] for each in target["not_exercised"]}
    assert left["StepEnlistmentSuite"] == "the step_ledger is in another database than the persistence"
    for suite in (
        "TransportEnlistmentSuite",
        "FairClaimSuite",
        "DeliveredJobSuite",
        "DeliveredJobEnlistmentSuite",
    ):
        assert left[suite] == "the job_transport is in another database than the persistence"


def test_a_url_that_nobody_can_empty_is_refused(
    refused: Refused, broken_adapter: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(broken_adapter["PYTHONPATH"])
    code, told = refused("broken://here")
    assert code == 2
    assert "broken://here can't be emptied between two tests; write {folder} in the URL" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no-such-scheme://here"], "no-such-scheme://here"),
        (["memory://", "--port=nothing"], "there is no port 'nothing'"),
        (["memory://", "--lacks=everything"], "'everything'"),
        (["--target=nothing"], "there is no target 'nothing'"),
        (["--target=PostgreSQL, asyncpg"], "give --server"),
        (["memory://", "--job-transport=no-such-scheme://x"], "no-such-scheme://x"),
    ],
)
def test_wrong_use_is_told_and_runs_nothing(refused: Refused, arguments: list[str], told: str) -> None:
    code, said = refused(*arguments)
    assert code == 2
    assert told in said


def test_the_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_application(["conformance", "--list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["target", "URL", "needs"]
    assert {"memory", "SQLite"} <= {row.split()[0] for row in rows}


@pytest.mark.wide
@pytest.mark.parametrize("fixture", [None, "sqlite_url", "postgres_url", "mariadb_url"])
def test_every_adapter_passes_by_the_command(
    fixture: str | None, conformance: Run, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = "memory://" if fixture is None else str(request.getfixturevalue(fixture))
    done = conformance(url, "--json=report.json", within=600)
    assert done.returncode == 0, done.stdout + done.stderr
    [target] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["targets"]
    assert {left["suite"] for left in target["not_exercised"]} == {
        "BorrowedSessionSuite",
        "EventSinkSuite",
        "PresignerSuite",
    }
