"""The pytest plugin: a fixture that makes harnesses, and their timelines in the reports of failed tests."""

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from stagewright.errors import HarnessStalledError, UnexpectedStatusError
from stagewright.hosting.registries import Workflows
from stagewright.ports import EventSink, KernelServices
from stagewright.testing.fake_clock import FakeClock
from stagewright.testing.harness import Harness

__all__ = ["HarnessFactory", "pytest_runtest_makereport", "stagewright_harness"]


class HarnessFactory(Protocol):
    """What the fixture `stagewright_harness` gives: it is called like `Harness`, as often as a test likes."""

    def __call__(
        self,
        workflows: Workflows,
        *,
        services: KernelServices | None = None,
        clock: FakeClock | None = None,
        max_ticks: int = 10_000,
        event_sink: EventSink | None = None,
    ) -> Harness: ...


_MADE: pytest.StashKey[list[Harness]] = pytest.StashKey()


@pytest.fixture
def stagewright_harness(request: pytest.FixtureRequest) -> HarnessFactory:
    """Make harnesses: `stagewright_harness(workflow)`. If the test fails, its report tells what their runs did."""
    made = request.node.stash.setdefault(_MADE, [])

    def make(
        workflows: Workflows,
        *,
        services: KernelServices | None = None,
        clock: FakeClock | None = None,
        max_ticks: int = 10_000,
        event_sink: EventSink | None = None,
    ) -> Harness:
        harness = Harness(
            workflows, services=services, clock=clock, max_ticks=max_ticks, event_sink=event_sink
        )
        made.append(harness)
        return harness

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the timelines of a failed test's runs to its report."""
    report = yield
    error = None if call.excinfo is None else call.excinfo.value
    tells_already = isinstance(error, HarnessStalledError | UnexpectedStatusError)
    if report.failed and not tells_already:
        for harness in item.stash.get(_MADE, []):
            timeline = _timeline(harness)
            if timeline:
                report.sections.append(("stagewright runs", timeline))
    return report


def _timeline(harness: Harness) -> str:
    # Whatever loop the test's own plugin keeps is left alone.
    with ThreadPoolExecutor(max_workers=1) as thread:
        try:
            return thread.submit(lambda: asyncio.run(harness.timeline())).result()
        except Exception as error:
            # What is raised here ends the whole session of pytest, and with it the report of the failure itself.
            return f"they can't be told: {type(error).__name__}: {error}"
