from pathlib import Path

from stagewright_test_support.architecture.faults import expect_none
from stagewright_test_support.architecture.made_up import MakeTree
from stagewright_test_support.architecture.repository import Repository
from stagewright_test_support.architecture.sizes import SizeException, oversized, read_exceptions

LONG_FILE = "x = 1\n" * 501
LONG_FUNCTION = "class A:\n    def f(self):\n" + "        x = 1\n" * 60


def test_files_and_functions_of_this_repository_stay_small(repository: Repository) -> None:
    exceptions = read_exceptions(Path(__file__).with_name("size_exceptions.toml"))
    expect_none(oversized(repository, exceptions))


def test_a_long_file_is_found(made_up: MakeTree) -> None:
    assert oversized(made_up({"packages/a/src/a/long.py": LONG_FILE}), {}) == [
        "packages/a/src/a/long.py: 501 lines, at most 500; it ends where its noun ends"
    ]


def test_a_long_method_is_found_by_its_qualified_name(made_up: MakeTree) -> None:
    [fault] = oversized(made_up({"tests/test_a.py": LONG_FUNCTION}), {})
    assert fault.startswith("tests/test_a.py::A.f: 61 lines, at most 60")


def test_an_exception_holds_up_to_its_number(made_up: MakeTree) -> None:
    tree = made_up({"a.py": LONG_FILE})
    assert oversized(tree, {"a.py": SizeException(501, "one table")}) == []
    assert oversized(tree, {"a.py": SizeException(500, "one table")}) != []


def test_an_exception_that_is_not_needed_or_has_no_reason_is_found(made_up: MakeTree) -> None:
    tree = made_up({"a.py": "x = 1\n", "b.py": LONG_FILE})
    exceptions = {
        "a.py": SizeException(600, "was long"),
        "b.py": SizeException(600, ""),
        "gone.py": SizeException(600, "was long"),
    }
    assert oversized(tree, exceptions) == [
        "a.py: 1 lines need no exception any more; remove it",
        "gone.py: has an exception but doesn't exist",
        "b.py: an exception needs a reason",
    ]


def test_what_is_not_ours_is_not_measured(made_up: MakeTree) -> None:
    assert oversized(made_up({".venv/lib/a.py": LONG_FILE, "build/a.py": LONG_FILE}), {}) == []
