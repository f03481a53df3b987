"""Fairness on its way from `open_kernel` to the job transport."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stagewright.definitions import StageContext, define_workflow
from stagewright.errors import InvalidSettingError
from stagewright.hosting.assembly import open_kernel
from stagewright.memory import InMemoryJobTransport
from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet, PluginSet, hookimpl
from stagewright.ports import GroupsJobs
from stagewright.records import Fairness

NONE = PluginSet()
FAIRNESS = Fairness(max_concurrent_per_group=2, group_by="config.tenantId")


async def body(ctx: StageContext[Any]) -> Any:
    return ctx.input


FLOW = define_workflow("flow", input=Any).stage("s", body, input=Any, output=Any).build()


class Unfair:
    """A plugin whose transport heeds no fairness."""

    @hookimpl
    def stagewright_register_adapters(self, registry: AdapterRegistry) -> None:
        registry.add("unfair", self.open)

    @asynccontextmanager
    async def open(self, url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
        assert options.fairness == FAIRNESS
        yield AdapterSet(job_transport=InMemoryJobTransport())


async def test_fairness_reaches_the_job_transport_of_a_url() -> None:
    async with open_kernel(FLOW, "memory://", plugins=NONE, fairness=FAIRNESS) as kernel:
        assert isinstance(kernel.ports.job_transport, GroupsJobs)
        assert kernel.ports.job_transport.fairness == kernel.ports.fairness == FAIRNESS
    async with open_kernel(FLOW, "memory://", plugins=NONE) as kernel:
        assert kernel.ports.fairness is None


@pytest.mark.parametrize("wanted", [FAIRNESS, None])
async def test_a_transport_that_is_given_keeps_its_own(wanted: Fairness | None) -> None:
    own = InMemoryJobTransport(fairness=FAIRNESS)
    async with open_kernel(FLOW, "memory://", plugins=NONE, job_transport=own, fairness=wanted) as kernel:
        assert kernel.ports.fairness == FAIRNESS


@pytest.mark.guarantee("plugins.fairness-never-ignored")
@pytest.mark.parametrize(
    "given",
    [
        "unfair://",
        InMemoryJobTransport(),
        InMemoryJobTransport(fairness=Fairness(max_concurrent_per_group=3)),
    ],
)
async def test_fairness_that_would_be_ignored_is_refused(given: str | InMemoryJobTransport) -> None:
    plugins = PluginSet().with_plugin("unfair", Unfair())
    with pytest.raises(InvalidSettingError, match="isn't kept by the job transport, InMemoryJobTransport"):
        async with open_kernel(FLOW, "memory://", plugins=plugins, job_transport=given, fairness=FAIRNESS):
            raise AssertionError("it was opened")


@pytest.mark.parametrize("wrong", [3, "config.tenantId", {"max_concurrent_per_group": 2}])
async def test_what_is_no_fairness_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidSettingError, match="fairness=.*must be a Fairness"):
        async with open_kernel(FLOW, "memory://", plugins=NONE, fairness=wrong):  # type: ignore[arg-type] # on purpose
            raise AssertionError("it was opened")
