"""What it costs to have this distribution installed, and the names that are imported when they are used."""

import subprocess
import sys

import pytest

import stagewright_transport_redis as package

VENDORS = ("redis",)

RUN = """
import sys
from stagewright.cli.application import run_application

code = run_application(sys.argv[1:])
assert code == 0, code
assert "stagewright_transport_redis.plugin" in sys.modules
found = [name for name in {vendors!r} if name in sys.modules]
assert not found, found
"""


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"]])
@pytest.mark.guarantee("plugins.vendors-imported-when-used")
def test_a_command_that_opens_no_url_imports_no_vendor(arguments: list[str]) -> None:
    command = [sys.executable, "-c", RUN.format(vendors=VENDORS), *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_found_and_kept() -> None:
    for name in package.__all__:
        value = getattr(package, name)
        assert value.__name__ == name
        assert vars(package)[name] is value
    assert set(package.__all__) <= set(dir(package))


def test_any_other_name_is_refused_as_python_does() -> None:
    with pytest.raises(
        AttributeError, match="module 'stagewright_transport_redis' has no attribute 'nothing'"
    ):
        _ = package.nothing  # type: ignore[attr-defined]  # that is the point
    with pytest.raises(ImportError, match="nothing"):
        from stagewright_transport_redis import nothing  # type: ignore[attr-defined]  # as above  # noqa: F401
