"""Stores that lose, repeat or misplace signals, or nudge wrongly; collected by an inner run alone."""

import asyncio
from dataclasses import replace
from datetime import datetime

from stagewright.errors import RecordNotFoundError
from stagewright.memory import InMemoryPersistence
from stagewright.records import SignalRecord, StagePatch
from stagewright_conformance import SignalSuite, StageSuite
from stagewright_test_support.doubles import PersistenceDoubles


class KeepsTheLastSignal(InMemoryPersistence):
    """A later signal takes the place of the first."""

    async def insert_signal_if_absent(self, signal: SignalRecord) -> bool:
        there = await self.get_signal(signal.run_id, signal.stage_id, signal.step_id)
        if there is not None:
            await self.delete_signal(there.id)
        return await super().insert_signal_if_absent(signal)


class TestKeepsTheLastSignal(PersistenceDoubles, SignalSuite):
    double = KeepsTheLastSignal


class KeepsSignalsByStepAlone(InMemoryPersistence):
    """Steps of one id in two stages share a signal."""

    async def get_signal(self, run_id: str, stage_id: str, step_id: str) -> SignalRecord | None:
        signals = await self.list_signals(run_id)
        return next((signal for signal in signals if signal.step_id == step_id), None)


class TestKeepsSignalsByStepAlone(PersistenceDoubles, SignalSuite):
    double = KeepsSignalsByStepAlone


class TellsBothThatTheyWon(InMemoryPersistence):
    """Looks, and inserts later."""

    async def insert_signal_if_absent(self, signal: SignalRecord) -> bool:
        there = await self.get_signal(signal.run_id, signal.stage_id, signal.step_id)
        await asyncio.sleep(0)
        await super().insert_signal_if_absent(signal)
        return there is None


class TestTellsBothThatTheyWon(PersistenceDoubles, SignalSuite):
    double = TellsBothThatTheyWon


class KeepsSignalsOutside(InMemoryPersistence):
    """A signal is kept whatever becomes of the transaction."""

    async def insert_signal_if_absent(self, signal: SignalRecord) -> bool:
        return await InMemoryPersistence(self.database).insert_signal_if_absent(signal)


class TestKeepsSignalsOutside(PersistenceDoubles, SignalSuite):
    double = KeepsSignalsOutside


class ListsSignalsAsTheyCame(InMemoryPersistence):
    """Signals are listed by their ids alone."""

    async def list_signals(self, run_id: str) -> list[SignalRecord]:
        return sorted(await super().list_signals(run_id), key=lambda signal: signal.id)


class TestListsSignalsAsTheyCame(PersistenceDoubles, SignalSuite):
    double = ListsSignalsAsTheyCame


class NeverForgetsASignal(InMemoryPersistence):
    """A signal that was taken can be taken again."""

    async def delete_signal(self, signal_id: str) -> None:
        return


class TestNeverForgetsASignal(PersistenceDoubles, SignalSuite):
    double = NeverForgetsASignal


class RaisesTheVersion(InMemoryPersistence):
    """A nudge makes what others do with the stage stale."""

    async def nudge_stage(self, stage_record_id: str, at: datetime) -> None:
        await super().nudge_stage(stage_record_id, at)
        await self.update_stage(stage_record_id, StagePatch(updated_at=at))


class TestRaisesTheVersion(PersistenceDoubles, StageSuite):
    double = RaisesTheVersion


class PutsPollsOff(InMemoryPersistence):
    """A nudge makes an earlier poll later."""

    async def nudge_stage(self, stage_record_id: str, at: datetime) -> None:
        stages = self.database.stages
        async with self._statement("nudge_stage") as tx:
            stage = await tx.lock_row(stages, stage_record_id)
            if stage is None:
                raise RecordNotFoundError("stage", stage_record_id)
            due = None if stage.next_poll_at is None else at
            tx.put(stages, replace(stage, next_poll_at=due, nudged_at=at))


class TestPutsPollsOff(PersistenceDoubles, StageSuite):
    double = PutsPollsOff
