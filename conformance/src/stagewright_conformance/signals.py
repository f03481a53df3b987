"""Signals that wait for their steps: one for each, kept until it is taken."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from stagewright.errors import RecordNotFoundError
from stagewright.json_values import Json
from stagewright.ports import Persistence
from stagewright.records import ClaimCheck
from stagewright_conformance.samples import LATER, MOMENT, ODD_JSON, a_run, a_signal, exactly
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["SignalSuite"]


class SignalSuite(PersistenceSuite):
    """`SignalStore`.

    Fixtures: those of `PersistenceSuite`; `competitor` sends the same signal.
    """

    @pytest_asyncio.fixture
    async def run_id(self, persistence: Persistence) -> str:
        """The id of a run without signals."""
        run = a_run()
        await persistence.create_run(run)
        return run.id

    @pytest.mark.parametrize("payload", [None, ODD_JSON, [], "", 0, False, 1.0])
    async def test_a_signal_comes_back_as_it_was_kept(
        self, persistence: Persistence, run_id: str, payload: Json
    ) -> None:
        """`insert_signal_if_absent`, `get_signal`: whether it was kept, and the signal, exactly."""
        signal = a_signal(run_id, payload=payload)
        assert await persistence.insert_signal_if_absent(signal)
        stored = await persistence.get_signal(run_id, "price", "approval")
        assert stored is not None
        assert stored == signal
        assert exactly(stored.payload) == exactly(payload)
        spilled = replace(
            a_signal(run_id, step_id="ключ"), payload_claim=ClaimCheck(key="runs/ключ", size=2**40)
        )
        assert await persistence.insert_signal_if_absent(spilled)
        assert await persistence.get_signal(run_id, "price", "ключ") == spilled

    async def test_a_step_has_one_signal(self, persistence: Persistence, run_id: str) -> None:
        """`insert_signal_if_absent`: unless one for that step is kept; names are compared letter by letter."""
        first = a_signal(run_id, payload=1)
        assert await persistence.insert_signal_if_absent(first)
        assert not await persistence.insert_signal_if_absent(a_signal(run_id, payload=2))
        assert await persistence.get_signal(run_id, "price", "approval") == first
        others = [("price", "Approval"), ("price", "approval "), ("ship", "approval")]
        for stage_id, step_id in others:
            assert await persistence.get_signal(run_id, stage_id, step_id) is None
            assert await persistence.insert_signal_if_absent(
                a_signal(run_id, stage_id=stage_id, step_id=step_id)
            )

    async def test_a_conflict_spoils_no_transaction(self, persistence: Persistence, run_id: str) -> None:
        """`insert_signal_if_absent`: never an error for a conflict."""
        await persistence.insert_signal_if_absent(a_signal(run_id))
        async with persistence.transaction() as tx:
            assert not await tx.insert_signal_if_absent(a_signal(run_id))
            assert await tx.insert_signal_if_absent(a_signal(run_id, step_id="other"))
        assert await persistence.get_signal(run_id, "price", "other") is not None

    async def test_of_many_signals_at_once_one_is_kept(
        self, persistence: Persistence, competitor: Persistence, run_id: str, scale: Scale
    ) -> None:
        """`insert_signal_if_absent`: of several callers at once one succeeds."""
        signals = [a_signal(run_id, payload=number) for number in range(scale.contenders)]
        stores = [persistence, competitor] * scale.contenders
        answers = await scale.soon(
            asyncio.gather(
                *(
                    store.insert_signal_if_absent(signal)
                    for store, signal in zip(stores, signals, strict=False)
                )
            )
        )
        [winner] = [signal for signal, kept in zip(signals, answers, strict=True) if kept]
        assert await persistence.list_signals(run_id) == [winner]

    @pytest.mark.parametrize("kept", [True, False])
    async def test_a_second_signal_waits_for_the_first(
        self,
        persistence: Persistence,
        competitor: Persistence,
        run_id: str,
        scale: Scale,
        background: Background,
        kept: bool,
    ) -> None:
        """`insert_signal_if_absent`: the others wait until that one's transaction has ended."""

        async def first() -> "asyncio.Task[bool]":
            async with persistence.transaction() as tx:
                assert await tx.insert_signal_if_absent(a_signal(run_id))
                second = background.start(competitor.insert_signal_if_absent(a_signal(run_id)))
                assert await scale.still_waits(second)
                if not kept:
                    raise LookupError(second)
                return second

        try:
            task: Any = await first()
        except LookupError as rolled_back:
            (task,) = rolled_back.args
        assert await scale.soon(task) is not kept

    async def test_a_signal_needs_its_run(self, persistence: Persistence) -> None:
        """`insert_signal_if_absent`: RecordNotFoundError if its run doesn't exist, at the latest at commit."""

        async def keep() -> None:
            async with persistence.transaction() as tx:
                await tx.insert_signal_if_absent(a_signal("none"))

        with pytest.raises(RecordNotFoundError):
            await keep()
        assert await persistence.list_signals("none") == []

    async def test_signals_are_listed_by_time_then_id(self, persistence: Persistence, run_id: str) -> None:
        """`list_signals`: all signals of that run and no other, by `created_at`, then by id."""
        other = a_run()
        await persistence.create_run(other)
        await persistence.insert_signal_if_absent(a_signal(other.id))
        order = [("c", LATER), ("b", MOMENT), ("a", LATER), ("d", MOMENT - timedelta(microseconds=1))]
        for name, moment in order:
            await persistence.insert_signal_if_absent(
                a_signal(run_id, id=f"{name}-{run_id}", step_id=name, created_at=moment)
            )
        assert [one.step_id for one in await persistence.list_signals(run_id)] == ["d", "b", "a", "c"]

    async def test_a_signal_that_was_taken_is_gone(self, persistence: Persistence, run_id: str) -> None:
        """`delete_signal`: forgets that one; nothing happens if it is gone."""
        first, other = a_signal(run_id), a_signal(run_id, step_id="other")
        await persistence.insert_signal_if_absent(first)
        await persistence.insert_signal_if_absent(other)
        for _ in range(2):
            await persistence.delete_signal(first.id)
            assert await persistence.list_signals(run_id) == [other]
        assert await persistence.insert_signal_if_absent(a_signal(run_id)), "the step may have another"

    @pytest.mark.parametrize("kept", [True, False])
    async def test_signals_are_part_of_their_transaction(
        self, persistence: Persistence, run_id: str, kept: bool
    ) -> None:
        """`Persistence.transaction`: kept together or not at all, and seen inside."""
        old, new = a_signal(run_id, step_id="old"), a_signal(run_id, step_id="new")
        await persistence.insert_signal_if_absent(old)

        async def change() -> None:
            async with persistence.transaction() as tx:
                await tx.delete_signal(old.id)
                await tx.insert_signal_if_absent(new)
                assert await tx.list_signals(run_id) == [new]
                assert await persistence.list_signals(run_id) == [old]
                if not kept:
                    raise LookupError

        if kept:
            await change()
        else:
            with pytest.raises(LookupError):
                await change()
        assert await persistence.list_signals(run_id) == ([new] if kept else [old])

    async def test_a_payload_is_the_callers_own(self, persistence: Persistence, run_id: str) -> None:
        """`Persistence`: values that go in or come out are the caller's own."""
        payload: list[Json] = [1]
        await persistence.insert_signal_if_absent(a_signal(run_id, payload=payload))
        payload.append(2)
        stored = await persistence.get_signal(run_id, "price", "approval")
        assert stored is not None
        assert isinstance(stored.payload, list)
        stored.payload.append(3)
        assert [one.payload for one in await persistence.list_signals(run_id)] == [[1]]
