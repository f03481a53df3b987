"""What every conformance test owes its reader."""

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Final

import pytest

import stagewright_conformance
from stagewright_conformance import (
    AI_CALL_SUITES,
    BLOB_DATE_SUITES,
    BLOB_STORE_SUITES,
    ENGINE_SUITES,
    EVENT_SINK_SUITES,
    JOB_TRANSPORT_SUITES,
    PERSISTENCE_SUITES,
    PRESIGNER_SUITES,
    RUN_READER_SUITES,
    STEP_LEDGER_SUITES,
    Capabilities,
    DeploymentSuite,
    PersistenceSuite,
    Suite,
    suites_left_out,
)

SUITES: Final = [
    value
    for value in (getattr(stagewright_conformance, name) for name in stagewright_conformance.__all__)
    if inspect.isclass(value)
    and issubclass(value, Suite)
    and value not in (Suite, PersistenceSuite, DeploymentSuite)
]


def documented_tests(suite: type[Suite]) -> dict[str, str]:
    members = vars(suite).items()
    return {name: inspect.getdoc(member) or "" for name, member in members if name.startswith("test_")}


@pytest.mark.parametrize("suite", SUITES)
def test_every_test_cites_its_clause(suite: type[Suite]) -> None:
    tests = documented_tests(suite)
    assert tests
    assert [name for name, doc in tests.items() if not re.match(r"`[\w.]+`[^:]*: .+\.$", doc)] == []


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_documents_its_fixtures(suite: type[Suite]) -> None:
    assert "Fixtures: " in (inspect.getdoc(suite) or "")


def test_capabilities_stay_few_and_each_is_needed() -> None:
    names = [field.name for field in dataclasses.fields(Capabilities)]
    assert len(names) <= 15
    package = Path(inspect.getfile(stagewright_conformance)).parent
    text = "".join(path.read_text(encoding="utf-8") for path in package.glob("*.py"))
    assert [name for name in names if f'mark.needs("{name}")' not in text] == []


def test_every_suite_is_part_of_one_port() -> None:
    parts = [
        *PERSISTENCE_SUITES,
        *JOB_TRANSPORT_SUITES,
        *BLOB_STORE_SUITES,
        *STEP_LEDGER_SUITES,
        *RUN_READER_SUITES,
        *AI_CALL_SUITES,
        *ENGINE_SUITES,
        *BLOB_DATE_SUITES,
        *PRESIGNER_SUITES,
        *EVENT_SINK_SUITES,
    ]
    assert sorted(suite.__name__ for suite in parts) == sorted(suite.__name__ for suite in SUITES)


def test_the_readme_lists_every_suite() -> None:
    text = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    table = "".join(line for line in text.splitlines() if line.startswith("|"))
    assert [suite.__name__ for suite in SUITES if f"`{suite.__name__}`" not in table] == []


def test_a_suite_that_no_test_class_runs_is_named() -> None:
    blobs, listing, streams = BLOB_STORE_SUITES
    partly = {"TestBlobs": type("TestBlobs", (blobs,), {}), "Helper": type("Helper", (listing,), {}), "x": 1}
    assert suites_left_out(partly, BLOB_STORE_SUITES) == ["BlobListingSuite", "BlobStreamSuite"]
    together = type("TestTogether", (listing, streams), {})
    assert suites_left_out({**partly, "TestTogether": together}, BLOB_STORE_SUITES) == []


def test_every_suite_runs_in_memory() -> None:
    text = Path(__file__).with_name("test_memory.py").read_text(encoding="utf-8")
    run = set(re.findall(r"\(InMemory(?:Engine)?, (\w+)\)", text))
    assert run == {suite.__name__ for suite in SUITES}


def test_every_suite_is_run_on_a_broken_double() -> None:
    bitten = {
        base.id
        for path in Path(__file__).with_name("doubles").glob("broken_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name)
    }
    assert [suite.__name__ for suite in SUITES if suite.__name__ not in bitten] == []


def test_suites_that_would_hide_each_others_tests_are_not_combined() -> None:
    with pytest.raises(TypeError, match="test_a_stale_version_writes_nothing"):
        type("Both", (stagewright_conformance.RunSuite, stagewright_conformance.StageSuite), {})
