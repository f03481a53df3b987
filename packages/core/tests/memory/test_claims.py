import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.records import NewEvent, NewJob, RunRecord


async def test_concurrent_claimers_share_hundreds_of_rows_and_no_row_twice(
    store: InMemoryPersistence,
    database: InMemoryDatabase,
    new_run: Callable[..., RunRecord],
    new_job: Callable[..., NewJob],
    start: datetime,
) -> None:
    ids = [f"r{number:03}" for number in range(300)]
    for id in ids:
        await store.create_run(new_run(id))
    transport = InMemoryJobTransport(database)
    await transport.enqueue_parallel([new_job(id, run_id=id) for id in ids])
    shares: list[list[str]] = [[] for _ in range(8)]
    delivered: list[str] = []

    async def work(share: list[str]) -> None:
        while True:
            async with store.transaction() as tx:
                enlisted = transport.enlist(tx)
                assert enlisted is not None
                runs = await tx.claim_pending_runs(4, now=start, serves=None)
                await asyncio.sleep(0)
                jobs = await enlisted.dequeue(worker_id="w", limit=3)
                await asyncio.sleep(0)
            if not runs and not jobs:
                return
            share.extend(run.id for run in runs)
            delivered.extend(job.job_id for job in jobs)

    await asyncio.gather(*(work(share) for share in shares))
    assert sorted(id for share in shares for id in share) == ids
    assert sorted(delivered) == ids
    assert sum(1 for share in shares if share) == 8
    assert await transport.depth() == 0


async def test_concurrent_flushers_never_hold_events_of_one_run_together(
    store: InMemoryPersistence,
    new_run: Callable[..., RunRecord],
    new_event: Callable[[str, str], NewEvent],
    start: datetime,
) -> None:
    runs = [f"r{number:02}" for number in range(20)]
    for run_id in runs:
        await store.create_run(new_run(run_id))
        await store.append_outbox_events([new_event(f"{run_id}-{number}", run_id) for number in range(10)])
    published: list[tuple[str, int]] = []
    holders: dict[str, str] = {}

    async def flush(token: str) -> None:
        until = start + timedelta(minutes=1)
        while batch := await store.claim_unpublished_outbox_events(
            7, token=token, now=start, claimed_until=until
        ):
            for run_id in {event.run_id for event in batch}:
                assert holders.setdefault(run_id, token) == token
            for event in batch:
                await asyncio.sleep(0)
                published.append((event.run_id, event.sequence))
                assert await store.mark_outbox_events_published([event.id], token=token, now=start) == 1
            for run_id in {event.run_id for event in batch}:
                del holders[run_id]

    await asyncio.gather(*(flush(f"token-{number}") for number in range(8)))
    assert len(published) == len(set(published)) == 200
    for run_id in runs:
        sequences = [sequence for run, sequence in published if run == run_id]
        assert sequences == list(range(1, 11))
