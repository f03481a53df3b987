import subprocess
import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from stagewright.errors import DefinitionError, PluginConflictError
from stagewright.plugins import ConformanceTarget, discovery, hookimpl
from stagewright_conformance import installed_targets
from stagewright_conformance.targets import target_of

FILE = ConformanceTarget(name="a file", url="file://{folder}/x")
SERVER = ConformanceTarget(name="A server", url="thing+fast://{server}", server="thing")


def plugin_with(*targets: ConformanceTarget) -> ModuleType:
    plugin = ModuleType("plugin")

    @hookimpl
    def stagewright_conformance_targets() -> tuple[ConformanceTarget, ...]:
        return targets

    vars(plugin)["stagewright_conformance_targets"] = stagewright_conformance_targets
    return plugin


class Installed(EntryPoint):
    """An entry point whose module is in `LOADED`."""

    def load(self) -> ModuleType:
        return LOADED[self.value]


LOADED: dict[str, ModuleType] = {}


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"one": (SERVER, FILE), "two": (ConformanceTarget(name="another", url="other://"),)}
    monkeypatch.setattr(
        sys.modules[__name__], "LOADED", {name: plugin_with(*targets) for name, targets in names.items()}
    )
    points = [Installed(name, name, "stagewright") for name in names]
    monkeypatch.setattr(discovery, "entry_points", lambda group: points)


@pytest.mark.usefixtures("install")
def test_the_targets_of_all_plugins_are_found_by_name() -> None:
    assert [target.name for target in installed_targets()] == [
        "A server",
        "a file",
        "another",
        "files",
        "memory",
    ]


@pytest.mark.usefixtures("install")
def test_one_name_in_two_plugins_is_an_error_that_names_both() -> None:
    LOADED["two"] = plugin_with(FILE)
    with pytest.raises(PluginConflictError, match="conformance target 'a file'.*one.*two"):
        installed_targets()


def test_a_target_gives_its_url() -> None:
    assert FILE.at(folder="/tmp/t", server="ignored") == "file:///tmp/t/x"
    assert SERVER.at(server="me@here:1/db") == "thing+fast://me@here:1/db"


@pytest.mark.parametrize(("url", "server"), [("thing://{server}", None), ("thing://{folder}", "thing")])
def test_a_target_whose_url_and_server_differ_is_refused(url: str, server: str | None) -> None:
    with pytest.raises(DefinitionError, match="conformance target 'odd'"):
        ConformanceTarget(name="odd", url=url, server=server)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("thing://here", "plain"),
        ("thing+fast://here", "fast"),
        ("thing+other://here", "plain"),
        ("also://here", "plain"),
        ("thing://here?pooled=yes&x=1", "pooled"),
        ("thing+fast://here?pooled=yes", "pooled"),
        ("thing://here?pooled=no", "plain"),
        ("nothing://here", None),
    ],
)
def test_the_target_of_a_url_is_the_one_that_says_most_of_it(url: str, name: str | None) -> None:
    targets = (
        ConformanceTarget(name="fast", url="thing+fast://{folder}"),
        ConformanceTarget(name="plain", url="thing://{folder}", schemes=("also",)),
        ConformanceTarget(name="pooled", url="thing://{folder}?pooled=yes", schemes=("thing+fast",)),
    )
    found = target_of(url, targets)
    assert (None if found is None else found.name) == name


@pytest.mark.parametrize("field", ["lacks", "schemes"])
def test_names_that_are_no_tuple_are_refused(field: str) -> None:
    fields: dict[str, Any] = {field: "wake_ups"}
    with pytest.raises(DefinitionError, match=f"'odd'.*{field} is 'wake_ups'"):
        ConformanceTarget(name="odd", url="x://", **fields)


def test_pytest_lists_them_and_runs_nothing() -> None:
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--conformance-targets", "no-such-folder"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    first, *rows = done.stdout.splitlines()
    assert (done.returncode, first.split()) == (0, ["target", "URL", "needs"])
    assert len(rows) == len(installed_targets())
