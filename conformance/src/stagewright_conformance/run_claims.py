"""Claiming runs: each by one claimer, in order, and only what is served."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from stagewright.ports import Persistence
from stagewright.records import RunPatch, RunRecord, ServedDefinition, Serves
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_conformance.samples import LATER, MOMENT, a_run
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["RunClaimSuite"]


async def _create(persistence: Persistence, *runs: RunRecord) -> None:
    async with persistence.transaction() as tx:
        for run in runs:
            await tx.create_run(run)


async def _claim(persistence: Persistence, limit: int = 100, serves: Serves = None) -> list[RunRecord]:
    return await persistence.claim_pending_runs(limit, now=LATER, serves=serves)


class RunClaimSuite(PersistenceSuite):
    """`RunClaims`.

    Fixtures: those of `PersistenceSuite`; `persistence` and `competitor` claim against each other.
    """

    async def test_a_claimed_run_is_running_one_version_later(self, persistence: Persistence) -> None:
        """`claim_pending_runs`: RUNNING, `started_at` and `updated_at` are `now`, the version rises by one."""
        run = a_run()
        await _create(persistence, run)
        expected = replace(run, status=Status.RUNNING, started_at=LATER, updated_at=LATER, version=2)
        assert await _claim(persistence) == [expected]
        assert await persistence.get_run(run.id) == expected
        assert await _claim(persistence) == []

    async def test_a_run_that_was_started_before_keeps_its_start(self, persistence: Persistence) -> None:
        """`claim_pending_runs`: `started_at` becomes `now` unless it was set."""
        run = replace(a_run(), started_at=MOMENT)
        await _create(persistence, run)
        [claimed] = await _claim(persistence)
        assert (claimed.started_at, claimed.updated_at) == (MOMENT, LATER)

    async def test_only_pending_runs_are_claimed(self, persistence: Persistence) -> None:
        """`claim_pending_runs`: PENDING runs and no others."""
        runs = [a_run(status=status) for status in (Status.PENDING, Status.RUNNING, *TERMINAL_RUN_STATUSES)]
        await _create(persistence, *runs)
        claimed = await _claim(persistence)
        assert [run.id for run in claimed] == [run.id for run in runs if run.status is Status.PENDING]

    @pytest.mark.guarantee("stores.claims-in-order")
    async def test_runs_are_claimed_by_priority_then_age_then_id(self, persistence: Persistence) -> None:
        """`claim_pending_runs`: higher priority first, then the earlier `created_at`, then the smaller id."""
        young = MOMENT + timedelta(microseconds=1)
        wanted = [
            a_run(id="m", priority=10, created_at=young),
            a_run(id="z", priority=5, created_at=MOMENT),
            a_run(id="a", priority=5, created_at=young),
            a_run(id="b", priority=5, created_at=young),
            a_run(id="c", priority=-1, created_at=MOMENT - timedelta(days=1)),
        ]
        await _create(persistence, *sorted(wanted, key=lambda run: run.id))
        assert [run.id for run in await _claim(persistence)] == [run.id for run in wanted]

    async def test_a_limit_takes_the_first_ones(self, persistence: Persistence) -> None:
        """`claim_pending_runs`: up to `limit`, in claiming order; the rest is left for the next claim."""
        runs = [a_run(priority=priority) for priority in (1, 9, 5, 7)]
        await _create(persistence, *runs)
        claims = [await _claim(persistence, limit) for limit in (1, 2, 2)]
        assert [[run.priority for run in claim] for claim in claims] == [[9], [7, 5], [1]]

    @pytest.mark.guarantee("stores.claims-one-claimer-per-run")
    @pytest.mark.parametrize("in_transactions", [False, True])
    @pytest.mark.parametrize("batch", [1, 7])
    async def test_under_contention_each_run_is_claimed_once_and_in_order(
        self,
        persistence: Persistence,
        competitor: Persistence,
        scale: Scale,
        batch: int,
        in_transactions: bool,
    ) -> None:
        """`claim_pending_runs`: no two claimers get the same run, and every run is got."""
        runs = [a_run(priority=n % 4, created_at=MOMENT + timedelta(seconds=n)) for n in range(scale.rows)]
        await _create(persistence, *runs)

        async def claim_once(store: Persistence) -> list[RunRecord]:
            if not in_transactions:
                return await _claim(store, batch)
            async with store.transaction() as tx:
                claimed = await _claim(tx, batch)
                await asyncio.sleep(0)
                return claimed

        answers: list[list[RunRecord]] = []

        async def claim_all(store: Persistence) -> None:
            # What others hold is skipped, so an empty answer isn't the end.
            while sum(map(len, answers)) < len(runs):
                answers.append(await claim_once(store))
                await asyncio.sleep(0)

        stores = [persistence if n % 2 else competitor for n in range(scale.contenders)]
        await scale.soon(asyncio.gather(*map(claim_all, stores)))
        assert Counter(run.id for answer in answers for run in answer) == Counter(run.id for run in runs)
        for answer in answers:
            assert answer == sorted(answer, key=lambda run: (-run.priority, run.created_at))

    @pytest.mark.needs("concurrent_writers")
    async def test_a_run_that_another_claimer_holds_is_skipped(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`claim_pending_runs`: rows that another transaction holds are skipped, never waited for."""
        first, second = a_run(priority=9), a_run(priority=1)
        await _create(persistence, first, second)
        async with persistence.transaction() as tx:
            assert [run.id for run in await _claim(tx, 1)] == [first.id]
            assert [run.id for run in await scale.soon(_claim(competitor, 2))] == [second.id]

    @pytest.mark.needs("concurrent_writers")
    async def test_a_run_that_is_locked_is_skipped(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`claim_pending_runs`: whoever locked a PENDING run, such as a cancel, keeps it from claimers."""
        run = a_run()
        await _create(persistence, run)
        async with persistence.transaction() as tx:
            await tx.lock_runs([run.id])
            assert await scale.soon(_claim(competitor)) == []
        assert [claimed.id for claimed in await _claim(competitor)] == [run.id]

    async def test_a_claim_that_is_rolled_back_can_be_made_again(self, persistence: Persistence) -> None:
        """`claim_pending_runs`: a claim is part of its transaction."""
        run = a_run()
        await _create(persistence, run)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                assert len(await _claim(tx)) == 1
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert [claimed.version for claimed in await _claim(persistence)] == [2]

    async def test_a_claimed_run_is_held_until_the_transaction_ends(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`claim_pending_runs`: claimed runs are locked until the transaction ends."""
        run = a_run()
        await _create(persistence, run)
        async with persistence.transaction() as tx:
            await _claim(tx)
            writing = background.start(competitor.update_run(run.id, RunPatch(updated_at=LATER)))
            assert await scale.still_waits(writing)
        await scale.soon(writing)
        stored = await persistence.get_run(run.id)
        assert stored is not None
        assert (stored.status, stored.version) == (Status.RUNNING, 3)

    @pytest.mark.parametrize(
        ("serves", "expected"),
        [
            (None, {"orders v1", "orders v2", "orders unpinned", "mail v1", "mail unpinned"}),
            ([], set()),
            ([ServedDefinition("orders", "v1")], {"orders v1", "orders unpinned"}),
            ([ServedDefinition("orders", "v9")], {"orders unpinned"}),
            ([ServedDefinition("orders", "v2"), ServedDefinition("mail", "v1")],
             {"orders v2", "orders unpinned", "mail v1", "mail unpinned"}),
            ([ServedDefinition("other", "v1")], set()),
            ([ServedDefinition("ORDERS", "v1"), ServedDefinition("orders ", "v1")], set()),
        ],
    )  # fmt: skip
    @pytest.mark.guarantee("stores.claims-only-what-is-served")
    async def test_only_what_is_served_is_claimed(
        self, persistence: Persistence, serves: Serves, expected: set[str]
    ) -> None:
        """`Serves`: these pairs and nothing else; None is everything; unpinned needs its workflow named."""
        names = ("orders v1", "orders v2", "orders unpinned", "mail v1", "mail unpinned")
        for name in names:
            workflow, version = name.split()
            pinned = None if version == "unpinned" else version
            await _create(persistence, a_run(id=name, workflow_id=workflow, definition_version=pinned))
        assert {run.id for run in await _claim(persistence, serves=serves)} == expected

    async def test_what_is_not_served_does_not_use_up_the_limit(self, persistence: Persistence) -> None:
        """`claim_pending_runs`: up to `limit` of the runs that are served."""
        others = [a_run(workflow_id="mail", priority=9) for _ in range(3)]
        mine = a_run(definition_version="v1")
        await _create(persistence, *others, mine)
        assert [run.id for run in await _claim(persistence, 1, [ServedDefinition("orders", "v1")])] == [
            mine.id
        ]

    @pytest.mark.guarantee("stores.claims-in-order")
    async def test_the_next_run_is_claimed_as_the_first_of_a_batch_is(self, persistence: Persistence) -> None:
        """`claim_next_pending_run`: what `claim_pending_runs` does with a limit of one; None if there is none."""
        first, second, last = (a_run(priority=priority) for priority in (9, 5, 1))
        await _create(persistence, last, first, second)
        claimed = await persistence.claim_next_pending_run(now=LATER)
        expected = replace(first, status=Status.RUNNING, started_at=LATER, updated_at=LATER, version=2)
        assert claimed == expected == await persistence.get_run(first.id)
        assert await persistence.get_run(second.id) == second
        next_one = await persistence.claim_next_pending_run(now=LATER)
        assert next_one is not None
        assert next_one.id == second.id
        assert [run.id for run in await _claim(persistence)] == [last.id]
        assert await persistence.claim_next_pending_run(now=LATER) is None

    @pytest.mark.guarantee("stores.claims-only-what-is-served")
    async def test_the_next_run_is_one_that_is_served(self, persistence: Persistence) -> None:
        """`claim_next_pending_run`: of the runs that are served; None if none of them is PENDING."""
        other, mine = a_run(workflow_id="mail", priority=9), a_run(definition_version="v1")
        await _create(persistence, other, mine)
        serves = [ServedDefinition("orders", "v1")]
        claimed = await persistence.claim_next_pending_run(now=LATER, serves=serves)
        assert claimed is not None
        assert claimed.id == mine.id
        assert await persistence.claim_next_pending_run(now=LATER, serves=serves) is None
        assert await persistence.claim_next_pending_run(now=LATER, serves=[]) is None
        assert await persistence.get_run(other.id) == other

    @pytest.mark.guarantee("stores.claims-one-claimer-per-run")
    async def test_of_many_who_ask_for_the_next_run_each_gets_another(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`claim_next_pending_run`: no two claimers get the same run, and every run is got."""
        runs = [a_run() for _ in range(scale.contenders)]
        await _create(persistence, *runs)
        got: list[str] = []

        async def claim_all(store: Persistence) -> None:
            # What others hold is skipped, so None isn't the end.
            while len(got) < len(runs):
                run = await store.claim_next_pending_run(now=LATER)
                got.extend([] if run is None else [run.id])
                await asyncio.sleep(0)

        stores = [persistence if n % 2 else competitor for n in range(scale.contenders)]
        await scale.soon(asyncio.gather(*map(claim_all, stores)))
        assert Counter(got) == Counter(run.id for run in runs)
