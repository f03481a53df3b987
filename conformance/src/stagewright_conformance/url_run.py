"""A pytest of its own that runs every suite on some places, whatever the folder it is started in is set up for."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from stagewright.plugins import AdapterOptions, AdapterRegistry
from stagewright_conformance.exercised import Exercised
from stagewright_conformance.places import PORTS, Place
from stagewright_conformance.preparation import empty_store, refuse_what_is_in_use, served_ports
from stagewright_conformance.report import Outcome, Report

__all__ = ["RUN", "UrlRun", "run_suites"]

_SETTINGS: Final = """\
[pytest]
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
tmp_path_retention_policy = none
filterwarnings =
    ignore::pytest.PytestAssertRewriteWarning
"""
_PLUGINS: Final = ("pytest_asyncio.plugin", "stagewright_conformance.pytest_plugin")
_READ_BY_PYTEST: Final = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlRun:
    """What is to be run.

    Attributes:
        places: Where; their names differ.
        registry: The adapters that open their URLs.
        ports: The ports whose suites are wanted.
        erase: Whether what is there may be deleted.
        options: How stores beside the places are opened.
        exercised: Keeps what was exercised, and writes it.
    """

    places: tuple[Place, ...]
    registry: AdapterRegistry
    ports: tuple[str, ...] = PORTS
    erase: bool = False
    options: AdapterOptions = field(default_factory=AdapterOptions)
    exercised: Exercised = field(default_factory=Exercised)


RUN: Final = pytest.StashKey[UrlRun]()


def run_suites(run: UrlRun, arguments: Sequence[str] = ()) -> tuple[Report, int]:
    """Run the suites of all ports that the places serve.

    Args:
        run: What to run.
        arguments: Further arguments of pytest's, such as `-k` and an expression.

    Returns:
        The report, and pytest's exit code.

    Raises:
        StoreRefusedError: If a store isn't empty, or can't be emptied; nothing was changed in any.
        StagewrightError: Whatever opening a URL raises.
    """
    for place in run.places:
        asyncio.run(refuse_what_is_in_use(place, run.registry, erase=run.erase))
    with tempfile.TemporaryDirectory(prefix="stagewright-conformance-") as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text(_SETTINGS, encoding="utf-8")
        try:
            plugin = _Suites(run, _served_by_place(run, folder))
            with _pytest_alone():
                code = pytest.main([*_arguments(folder), *arguments], plugins=[run.exercised, plugin])
        finally:
            for store in {store.url: store for place in run.places for store in place.stores}.values():
                asyncio.run(empty_store(store))
    return run.exercised.report(), int(code)


class _Suites:
    """The plugin of the inner pytest: each suite on each place that serves its port."""

    def __init__(self, run: UrlRun, served: dict[str, tuple[str, ...]]) -> None:
        self._run = run
        self._served = served

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[RUN] = self._run
        # The plugin that is named on the command line is one module of the package, and the suites are others.
        pytest.register_assert_rewrite("stagewright_conformance")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each test every place; those without its port are told below."""
        mark = pytest.mark.conformance_target
        places = [
            pytest.param(place, marks=mark(place.name), id=f"url{number}")
            for number, place in enumerate(self._run.places, 1)
        ]
        metafunc.parametrize("place", places)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the ports that a place doesn't serve, or that aren't wanted, and say so in the report."""
        kept: list[pytest.Item] = []
        for item in items:
            port: str = getattr(getattr(item, "cls", None), "port", "")
            place: Place = getattr(item, "callspec").params["place"]  # noqa: B009 - no item but a function has it
            reason = self._reason_to_leave_out(port, place)
            if reason is None:
                kept.append(item)
                continue
            suite = getattr(item, "cls").__name__.removeprefix("Test")  # noqa: B009 - as above
            outcome = Outcome(target=place.name, suite=suite, test="", result="not exercised", problem=reason)
            self._run.exercised.add(outcome)
        items[:] = kept

    def _reason_to_leave_out(self, port: str, place: Place) -> str | None:
        if port not in self._run.ports:
            return f"only {', '.join(self._run.ports)} was asked for"
        return None if port in self._served[place.name] else f"the URL serves no {port}"


def _served_by_place(run: UrlRun, folder: Path) -> dict[str, tuple[str, ...]]:
    served: dict[str, tuple[str, ...]] = {}
    for number, place in enumerate(run.places):
        own = folder / f"look-{number}"
        own.mkdir()
        served[place.name] = asyncio.run(served_ports(place, run.registry, own.as_posix()))
    return served


def _arguments(folder: Path) -> list[str]:
    spec = find_spec("stagewright_conformance.url_suites")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("stagewright_conformance.url_suites is no file, and pytest needs one")
    suites = Path(spec.origin)
    plugins = [word for name in _PLUGINS for word in ("-p", name)]
    return [
        str(suites),
        f"--rootdir={suites.parent}",
        f"--confcutdir={suites.parent}",
        f"-c={folder / 'pytest.ini'}",
        f"--basetemp={folder / 'tests'}",
        "--import-mode=importlib",
        "--noconftest",
        "--tb=short",
        "--strict-markers",
        "-q",
        "-rN",
        *plugins,
        *("-p", "no:cacheprovider"),
    ]


@contextmanager
def _pytest_alone() -> Iterator[None]:
    """Without the plugins and the options that the environment has for other tests."""
    before = {name: os.environ.pop(name, None) for name in _READ_BY_PYTEST}
    alone = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
    before[alone] = os.environ.get(alone)
    os.environ[alone] = "1"
    path = [*sys.path]
    try:
        yield
    finally:
        sys.path[:] = path
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
