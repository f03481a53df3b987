import pytest

from stagewright_test_support.architecture.faults import expect_none
from stagewright_test_support.architecture.guarantees import faults_in_register, markers, promises
from stagewright_test_support.architecture.made_up import MakeTree
from stagewright_test_support.architecture.repository import Repository

REGISTER = "docs/guarantees/steps.md"
ENTRY = "# Steps\n\n- `steps.recorded-once` — Each outcome is recorded once.\n"
TEST = 'import pytest\n\n@pytest.mark.guarantee("steps.recorded-once")\ndef test_a() -> None: ...\n'


def test_every_promise_has_a_test_and_every_marker_a_promise(repository: Repository) -> None:
    assert promises(repository) != []
    expect_none(faults_in_register(repository))


def test_a_promise_with_its_test_passes(made_up: MakeTree) -> None:
    assert faults_in_register(made_up({REGISTER: ENTRY, "packages/a/tests/test_a.py": TEST})) == []


@pytest.mark.parametrize(
    ("register", "test", "fault"),
    [
        (ENTRY, "", f"{REGISTER}:3: steps.recorded-once has no test"),
        ("", TEST, "tests/test_a.py:3: no promise is called steps.recorded-once"),
        (ENTRY + ENTRY, TEST, f"{REGISTER}:3: steps.recorded-once is promised twice"),
        (ENTRY.replace(" —", ":"), "", f"{REGISTER}:3: an entry reads"),
        (ENTRY.replace("recorded-once", "Recorded"), "", f"{REGISTER}:3: an entry reads"),
        (ENTRY.replace("once.", "once"), "", f"{REGISTER}:3: steps.recorded-once is no sentence"),
        (ENTRY.replace("steps.", "jobs."), "", f"{REGISTER}:3: jobs.recorded-once belongs in jobs.md"),
        (ENTRY, TEST + "mark = pytest.mark.guarantee(SLUG)\n", "tests/test_a.py:5: a guarantee is named by"),
    ],
)
def test_a_fault_is_found(made_up: MakeTree, register: str, test: str, fault: str) -> None:
    faults = faults_in_register(made_up({REGISTER: register, "tests/test_a.py": test}))
    assert faults
    assert faults[0].startswith(fault)


def test_markers_on_modules_classes_and_parameters_count(made_up: MakeTree) -> None:
    text = (
        'pytestmark = pytest.mark.guarantee("a.module")\n'
        '@pytest.mark.guarantee("a.class")\nclass TestA: ...\n'
        'case = pytest.param(1, marks=pytest.mark.guarantee("a.parameter"))\n'
    )
    found = markers(made_up({"tests/test_a.py": text}))
    assert {slug for slug, _ in found} == {"a.module", "a.class", "a.parameter"}
