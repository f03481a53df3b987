import sys
from pathlib import Path
from types import ModuleType

import pytest

from stagewright_test_support.architecture.public_exports import (
    PUBLIC_MODULES,
    SNAPSHOT,
    exports_of,
    read_snapshot,
    written_as,
)
from stagewright_test_support.architecture.repository import Repository


@pytest.mark.guarantee("packaging.public-names-frozen")
def test_public_names_change_only_on_purpose(repository: Repository) -> None:
    frozen = read_snapshot(repository.root / SNAPSHOT)
    assert exports_of(PUBLIC_MODULES) == frozen, "`nox -s exports` writes the new names down"


def test_the_snapshot_is_written_in_order(repository: Repository) -> None:
    path = repository.root / SNAPSHOT
    assert path.read_text(encoding="utf-8") == written_as(read_snapshot(path))


def a_module(monkeypatch: pytest.MonkeyPatch, **names: object) -> str:
    module = ModuleType("made_up")
    module.__spec__ = __spec__
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, "made_up", module)
    return "made_up"


def test_a_new_name_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    name = a_module(monkeypatch, __all__=["b", "a"], a=1, b=2)
    assert exports_of([name]) == {name: ["a", "b"]}


def test_a_name_that_the_module_does_not_hold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    name = a_module(monkeypatch, __all__=["a"])
    with pytest.raises(AttributeError):
        exports_of([name])


def test_a_module_without_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttributeError):
        exports_of([a_module(monkeypatch)])


def test_a_module_to_come_is_passed_over(tmp_path: Path) -> None:
    assert exports_of(["stagewright_to_come"]) == {}
