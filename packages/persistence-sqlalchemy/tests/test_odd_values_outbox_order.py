"""No event is passed over because its transaction was slow, and a rollback leaves no gap."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from stagewright import Kernel, StageContext, define_workflow
from stagewright.commands import CreateRun, FlushOutbox
from stagewright.records import NewEvent
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyPersistence
from stagewright_test_support.backend_choice import stores

MakeKernel = Callable[..., Kernel]

on_servers = pytest.mark.parametrize(
    "way", stores("asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True
)
everywhere = pytest.mark.parametrize(
    "way", stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True
)


async def _body(ctx: StageContext[Any]) -> Any:
    return None


@pytest.fixture
def kernel(database: Database, make_kernel: MakeKernel) -> Kernel:
    return make_kernel(
        database, define_workflow("flow", input=Any).stage("s", _body, input=Any, output=Any).build()
    )


def started(run_id: str, number: int) -> NewEvent:
    return NewEvent(
        id=f"{run_id}-{number}",
        run_id=run_id,
        type="workflow:started",
        payload={"timestamp": datetime.now(UTC).isoformat(), "run_id": run_id},
        occurred_at=datetime.now(UTC),
        causation_id="test",
    )


async def _two_runs(kernel: Kernel, deliver_all: Callable[[Kernel], Awaitable[None]]) -> tuple[str, str]:
    first, second = [(await kernel.dispatch(CreateRun("flow"))).run_id for _ in range(2)]
    await deliver_all(kernel)
    return first, second


@on_servers
@pytest.mark.guarantee("sql.events-of-slow-transactions-kept")
async def test_the_event_of_a_slow_transaction_is_delivered_after_a_quicker_one(
    kernel: Kernel,
    database: Database,
    sink: CollectingEventSink,
    deliver_all: Callable[[Kernel], Awaitable[None]],
) -> None:
    slow, quick = await _two_runs(kernel, deliver_all)
    sink.clear()
    async with SqlAlchemyPersistence(database).transaction() as first:
        await first.append_outbox_events([started(slow, 1)])
        # A read sends what waits: the number is taken and the row is there, for this transaction alone.
        await first.get_run(slow)
        async with SqlAlchemyPersistence(database).transaction() as second:
            await second.append_outbox_events([started(quick, 1)])
        assert (await kernel.dispatch(FlushOutbox())).published == 1
        assert [event.event_id for event in sink.events] == [f"{quick}-1"]
    assert (await kernel.dispatch(FlushOutbox())).published == 1
    assert [event.event_id for event in sink.events] == [f"{quick}-1", f"{slow}-1"]
    assert [event.sequence for event in sink.events] == [2, 2]


@everywhere
async def test_two_transactions_on_one_run_take_their_numbers_in_the_order_of_their_commits(
    kernel: Kernel,
    database: Database,
    sink: CollectingEventSink,
    deliver_all: Callable[[Kernel], Awaitable[None]],
) -> None:
    run_id, _ = await _two_runs(kernel, deliver_all)
    sink.clear()
    appended = asyncio.Event()

    async def append_late() -> None:
        await appended.wait()
        await SqlAlchemyPersistence(database).append_outbox_events([started(run_id, 2)])

    late = asyncio.create_task(append_late())
    async with SqlAlchemyPersistence(database).transaction() as tx:
        await tx.append_outbox_events([started(run_id, 1)])
        await tx.get_run(run_id)
        appended.set()
        await asyncio.sleep(0.1)
        assert not late.done()
    await late
    await deliver_all(kernel)
    assert [(event.event_id, event.sequence) for event in sink.events] == [
        (f"{run_id}-1", 2),
        (f"{run_id}-2", 3),
    ]


@everywhere
async def test_a_rollback_leaves_no_gap_and_stops_nobody(
    kernel: Kernel,
    database: Database,
    sink: CollectingEventSink,
    deliver_all: Callable[[Kernel], Awaitable[None]],
) -> None:
    run_id, other = await _two_runs(kernel, deliver_all)
    sink.clear()
    persistence = SqlAlchemyPersistence(database)
    with pytest.raises(RuntimeError, match="no"):
        async with persistence.transaction() as tx:
            await tx.append_outbox_events([started(run_id, 1), started(other, 1)])
            await tx.get_run(run_id)
            raise RuntimeError("no")
    async with persistence.transaction() as tx:
        with pytest.raises(RuntimeError, match="savepoint"):
            async with tx.transaction() as inner:
                await inner.append_outbox_events([started(run_id, 2)])
                await inner.get_run(run_id)
                raise RuntimeError("savepoint")
        await tx.append_outbox_events([started(run_id, 3)])
    await persistence.append_outbox_events([started(run_id, 4), started(other, 2)])
    await deliver_all(kernel)
    told = [(event.event_id, event.sequence) for event in sink.events]
    assert sorted(told) == sorted([(f"{run_id}-3", 2), (f"{run_id}-4", 3), (f"{other}-2", 2)])
    assert [one for one in told if str(one[0]).startswith(run_id)] == [(f"{run_id}-3", 2), (f"{run_id}-4", 3)]
