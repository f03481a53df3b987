"""What operators ask of a database: versions, dead letters and annotations."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow, define_workflow
from stagewright.annotations import Actor
from stagewright.commands import CancelRun, CreateRun, FlushOutbox, ListVersions, ReplayDeadLetters
from stagewright.conventions import Decision
from stagewright.errors import RunNotFoundError
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import Database
from stagewright_test_support.backend_choice import stores

MakeKernel = Callable[..., Kernel]

pytestmark = pytest.mark.parametrize("way", stores("sqlite", "asyncpg", "psycopg", "mariadb"), indirect=True)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


def flow(version: str) -> Workflow:
    return define_workflow("flow", input=Any).version(version).stage("s", echo, input=Any, output=Any).build()


async def test_versions_are_counted_with_those_that_nobody_here_serves(
    database: Database, make_kernel: MakeKernel
) -> None:
    old, new = make_kernel(database, flow("1")), make_kernel(database, flow("2"))
    begin = datetime.now(UTC)
    first, _ = [(await old.dispatch(CreateRun("flow"))).run_id for _ in range(2)]
    await old.dispatch(CancelRun(first))
    await new.dispatch(CreateRun("flow"))
    listed = await new.dispatch(ListVersions(workflow_id="flow"))
    assert [(one.definition_version, dict(one.counts), one.active) for one in listed.versions] == [
        ("2", {Status.PENDING: 1}, 1),
        ("1", {Status.PENDING: 1, Status.CANCELLED: 1}, 1),
    ]
    assert [one.definition_version for one in listed.unserved_here] == ["1"]
    assert begin - timedelta(seconds=1) < listed.versions[1].oldest_created_at <= datetime.now(UTC)
    assert (await new.dispatch(ListVersions(definition_version="3"))).versions == ()


async def test_dead_letters_are_replayed_by_the_next_flush(
    database: Database, make_kernel: MakeKernel
) -> None:
    sink = CollectingEventSink(max_retries=1)
    kernel = make_kernel(database, flow("1"), event_sink=sink)
    sink.fail_with(ConnectionError("down"), times=2)
    runs = [(await kernel.dispatch(CreateRun("flow"))).run_id for _ in range(2)]
    assert (await kernel.dispatch(FlushOutbox())).dead_lettered == 2
    await kernel.dispatch(CancelRun(runs[0]))
    assert (await kernel.dispatch(FlushOutbox())).published == 1
    assert [(await kernel.dispatch(ReplayDeadLetters(count))).replayed for count in (1, 5, 5)] == [1, 1, 0]
    assert (await kernel.dispatch(FlushOutbox())).published == 2
    assert [event.sequence for event in sink.events if event.run_id == runs[0]] == [2, 1]
    (record,) = await kernel.runs.events(runs[1])
    assert (record.retry_count, record.dead_lettered_at) == (0, None)
    assert record.last_error == "ConnectionError: down"


async def test_annotations_are_attached_and_found(database: Database, make_kernel: MakeKernel) -> None:
    kernel = make_kernel(database, flow("1"))
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    actor = Actor(kind="user", id="u1")
    for value in ("yes", "no"):
        await kernel.annotations.attach(
            run_id,
            {Decision.OUTCOME: value, "a_b": None},
            actor=actor,
            scope="order",
            scope_id="9",
            idempotency_key="once",
            emit_event=True,
        )
    await kernel.annotations.attach(run_id, {"aXb": 1, "a_b": 2, "A_b": 3})
    (row,) = await kernel.annotations.list(
        run_id, key=Decision.OUTCOME, scope="order", scope_id="9", actor_id="u1", actor_kind="user", attempt=0
    )
    assert (row.value, row.actor) == ("yes", actor)
    assert [row.key for row in await kernel.annotations.list(run_id, key_prefix="a_")] == ["a_b"]
    assert [row.key for row in await kernel.annotations.list(run_id, since=row.created_at, limit=2)] == [
        "decision.outcome",
        "aXb",
    ]
    assert [row.key for row in await kernel.annotations.list(run_id, until=row.created_at)] == [
        "decision.outcome"
    ]
    assert [event.type for event in await kernel.runs.events(run_id)] == [
        "workflow:created",
        "annotation:created",
    ]
    with pytest.raises(RunNotFoundError):
        await kernel.annotations.attach("nothing-here", {"a": 1})
