"""`run.listVersions`: which versions runs are pinned to, and what waits for a build that isn't here."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow, WorkflowRegistry, define_workflow
from stagewright.commands import CancelRun, CreateRun, ListVersions, ListVersionsResult
from stagewright.errors import InvalidCommandError
from stagewright.memory import InMemoryPersistence
from stagewright.records import RunRecord, VersionSummary
from stagewright.status import Status
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
StartRun = Callable[..., Awaitable[str]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


def flow(version: str, id: str = "flow") -> Workflow:
    return define_workflow(id, input=Any).version(version).stage("s", echo, input=Any, output=Any).build()


async def create(kernel: Kernel, workflow_id: str = "flow") -> str:
    return (await kernel.dispatch(CreateRun(workflow_id))).run_id


def keys(summaries: tuple[VersionSummary, ...]) -> list[tuple[str, str | None]]:
    return [(one.workflow_id, one.definition_version) for one in summaries]


@pytest.mark.guarantee("kernel.versions-are-counted")
async def test_each_version_says_how_many_runs_it_has_and_whether_it_is_served_here(
    make_kernel: MakeKernel, clock: FakeClock, start_run: StartRun, finish: Finish
) -> None:
    old, new = make_kernel(flow("1"), flow("1", "other")), make_kernel(flow("2"))
    begin = clock.now()
    await create(old, "other")
    await finish(old, await start_run(old))
    clock.advance("1h")
    await old.dispatch(CancelRun(await create(old)))
    await create(old)
    clock.advance("1h")
    await create(new)
    listed = await new.dispatch(ListVersions())
    assert listed == ListVersionsResult(
        supported=True,
        versions=(
            VersionSummary(
                workflow_id="flow",
                definition_version="2",
                counts={Status.PENDING: 1},
                total=1,
                active=1,
                drained=False,
                served_here=True,
                oldest_created_at=begin + timedelta(hours=2),
            ),
            VersionSummary(
                workflow_id="flow",
                definition_version="1",
                counts={Status.COMPLETED: 1, Status.CANCELLED: 1, Status.PENDING: 1},
                total=3,
                active=1,
                drained=False,
                served_here=False,
                oldest_created_at=begin,
            ),
            VersionSummary(
                workflow_id="other",
                definition_version="1",
                counts={Status.COMPLETED: 1},
                total=1,
                active=0,
                drained=True,
                served_here=False,
                oldest_created_at=begin,
            ),
        ),
        unserved_here=(listed.versions[1],),
    )
    assert keys((await old.dispatch(ListVersions())).unserved_here) == [("flow", "2")]


async def test_a_workflow_or_a_version_can_be_asked_for(make_kernel: MakeKernel) -> None:
    kernel = make_kernel(flow("1"), flow("1", "other"))
    await create(kernel)
    await create(kernel, "other")
    await create(make_kernel(flow("2")))
    assert len((await kernel.dispatch(ListVersions())).versions) == 3
    of_flow = await kernel.dispatch(ListVersions(workflow_id="flow"))
    assert keys(of_flow.versions) == [("flow", "1"), ("flow", "2")]
    of_version = await kernel.dispatch({"type": "run.listVersions", "definition_version": "1"})
    assert isinstance(of_version, ListVersionsResult)
    assert keys(of_version.versions) == [("flow", "1"), ("other", "1")]
    assert (await kernel.dispatch(ListVersions(workflow_id="flow", definition_version="9"))).versions == ()
    with pytest.raises(InvalidCommandError, match=r"\$\.workflow_id"):
        await kernel.dispatch(ListVersions(workflow_id=""))


@pytest.mark.tampers
async def test_runs_that_are_pinned_to_nothing_come_last_and_are_anybodys(
    make_kernel: MakeKernel, persistence: InMemoryPersistence, clock: FakeClock
) -> None:
    kernel = make_kernel(flow("1"))
    pinned = await kernel.runs.get(await create(kernel))
    assert pinned is not None
    clock.advance("1h")
    free = replace(pinned, id="free", definition_version=None, created_at=clock.now())
    await persistence.create_run(free)
    versions = (await make_kernel().dispatch(ListVersions())).versions
    assert [(one.definition_version, one.served_here) for one in versions] == [("1", False), (None, True)]


async def test_a_registry_that_can_not_list_is_asked_for_each(make_kernel: MakeKernel) -> None:
    class FindsOnly:
        def get(self, id: str, /) -> Workflow | None:
            return WorkflowRegistry([flow("2")]).get(id)

    for version in ("1", "2"):
        await create(make_kernel(flow(version)))
    await create(make_kernel(flow("1", "other")), "other")
    listed = await make_kernel(registry=FindsOnly()).dispatch(ListVersions())
    assert keys(listed.unserved_here) == [("flow", "1"), ("other", "1")]


async def test_the_registry_of_the_moment_decides(make_kernel: MakeKernel) -> None:
    class Changing:
        workflows: tuple[Workflow, ...] = ()

        def get(self, id: str, /) -> Workflow | None:
            return WorkflowRegistry(self.workflows).get(id)

        def list(self) -> tuple[Workflow, ...]:
            return self.workflows

    registry = Changing()
    kernel = make_kernel(registry=registry)
    assert kernel.served_definitions() == ()
    await create(make_kernel(flow("1")))
    assert len((await kernel.dispatch(ListVersions())).unserved_here) == 1
    registry.workflows = (flow("1"),)
    assert (await kernel.dispatch(ListVersions())).unserved_here == ()
    assert [(pair.workflow_id, pair.version) for pair in kernel.served_definitions() or ()] == [("flow", "1")]
