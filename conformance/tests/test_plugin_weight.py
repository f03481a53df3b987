"""What it costs other commands to have the suite installed, and the names that are imported when they are used."""

import subprocess
import sys

import pytest

import stagewright_conformance as package

RUN = """
import sys
from stagewright.cli.application import run_application

assert run_application(sys.argv[1:]) == 0
assert "stagewright_conformance.plugin" in sys.modules
found = [name for name in ("pytest", "pytest_asyncio") if name in sys.modules]
assert not found, found
"""


@pytest.mark.parametrize("arguments", [["plugins"], ["conformance", "--help"]])
@pytest.mark.guarantee("plugins.vendors-imported-when-used")
def test_a_command_that_runs_no_suite_imports_no_pytest(arguments: list[str]) -> None:
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_found_and_kept() -> None:
    for name in package.__all__:
        assert vars(package).get(name) is getattr(package, name) or name in vars(package)
    assert set(package.__all__) <= set(dir(package))


def test_any_other_name_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'stagewright_conformance' has no attribute 'nothing'"):
        _ = package.nothing  # type: ignore[attr-defined]  # that is the point
