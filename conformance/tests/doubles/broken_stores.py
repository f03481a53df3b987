"""Persistences with one clause about claims, keys or listings broken; collected by an inner run alone."""

import asyncio
import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar

import pytest

from stagewright.json_values import Json
from stagewright.memory import InMemoryDatabase, InMemoryPersistence
from stagewright.ports import Persistence
from stagewright.records import (
    AnnotationQuery,
    AnnotationRecord,
    DefinitionRecord,
    EventRecord,
    IdempotencyAnswer,
    KeyAcquired,
    KeyInProgress,
    LogRecord,
    RunPatch,
    RunQuery,
    RunRecord,
    Serves,
    StagePatch,
    StoredStage,
)
from stagewright.status import Status
from stagewright_conformance import (
    AnnotationSuite,
    DefinitionSuite,
    IdempotencySuite,
    LogSuite,
    RunClaimSuite,
    RunReaderSuite,
    Scale,
    StageSuite,
)


class Doubles:
    """Runs a suite on the double that the test class names."""

    double: ClassVar[type[InMemoryPersistence]]

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=4, rows=40, events_each=4, patience=0.5)

    @pytest.fixture
    def persistence(self) -> Persistence:
        return self.double(InMemoryDatabase())


class ClaimsOneRunTwice(InMemoryPersistence):
    """Pending runs are found first and taken later, whoever has taken them meanwhile."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        page = await self.list_runs(RunQuery(statuses=[Status.PENDING]), limit=1_000, cursor=None)
        found = sorted(page.items, key=lambda run: (-run.priority, run.created_at))[:limit]
        patch = RunPatch(updated_at=now, status=Status.RUNNING, started_at=now)
        for run in found:
            await self.update_run(run.id, patch)
        return [replace(run, status=Status.RUNNING) for run in found]


class TestClaimsOneRunTwice(Doubles, RunClaimSuite):
    double = ClaimsOneRunTwice


class IgnoresPriority(InMemoryPersistence):
    """The oldest run goes first, whatever its priority."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        claimed = await super().claim_pending_runs(1_000, now=now, serves=serves)
        claimed.sort(key=lambda run: run.created_at)
        for run in claimed[limit:]:
            async with self._statement("give back") as tx:
                tx.put(self.database.runs, replace(run, status=Status.PENDING, version=run.version - 1))
        return claimed[:limit]


class TestIgnoresPriority(Doubles, RunClaimSuite):
    double = IgnoresPriority


class WaitsForHeldRuns(InMemoryPersistence):
    """A claimer waits for rows that another transaction holds."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        page = await self.list_runs(RunQuery(statuses=[Status.PENDING]), limit=1_000, cursor=None)
        await self.lock_runs([run.id for run in page.items])
        return await super().claim_pending_runs(limit, now=now, serves=serves)


class TestWaitsForHeldRuns(Doubles, RunClaimSuite):
    double = WaitsForHeldRuns


class TakesNothingForEverything(InMemoryPersistence):
    """Who serves nothing gets everything."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        return await super().claim_pending_runs(limit, now=now, serves=serves or None)


class TestTakesNothingForEverything(Doubles, RunClaimSuite):
    double = TakesNothingForEverything


class RestartsStartedRuns(InMemoryPersistence):
    """A claim overwrites the time of the first start."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        claimed = await super().claim_pending_runs(limit, now=now, serves=serves)
        return [replace(run, started_at=now) for run in claimed]


class TestRestartsStartedRuns(Doubles, RunClaimSuite):
    double = RestartsStartedRuns


class LetsManyTakeAStaleKey(InMemoryPersistence):
    """A stale key is judged by one call and taken by another."""

    async def acquire_idempotency_key(
        self, key: str, command_type: str, *, fingerprint: str, now: datetime, stale_after: timedelta | None
    ) -> IdempotencyAnswer:  # fmt: skip
        answer = await super().acquire_idempotency_key(
            key, command_type, fingerprint=fingerprint, now=now, stale_after=None
        )
        if stale_after is None or not isinstance(answer, KeyInProgress):
            return answer
        await asyncio.sleep(0)
        await super().acquire_idempotency_key(
            key, command_type, fingerprint=fingerprint, now=now, stale_after=stale_after
        )
        return KeyAcquired()


class TestLetsManyTakeAStaleKey(Doubles, IdempotencySuite):
    double = LetsManyTakeAStaleKey


class ForgetsANullResult(InMemoryPersistence):
    """A command that answered null has no result."""

    async def complete_idempotency_key(self, key: str, command_type: str, *, result: Json) -> None:
        if result is not None:
            await super().complete_idempotency_key(key, command_type, result=result)


class TestForgetsANullResult(Doubles, IdempotencySuite):
    double = ForgetsANullResult


class AnswersWithoutWaiting(InMemoryPersistence):
    """A key that an open transaction took is outside of that transaction."""

    async def acquire_idempotency_key(
        self, key: str, command_type: str, *, fingerprint: str, now: datetime, stale_after: timedelta | None
    ) -> IdempotencyAnswer:  # fmt: skip
        outside = InMemoryPersistence(self.database)
        return await outside.acquire_idempotency_key(
            key, command_type, fingerprint=fingerprint, now=now, stale_after=stale_after
        )


class TestAnswersWithoutWaiting(Doubles, IdempotencySuite):
    double = AnswersWithoutWaiting


class ForgetsTheCommandType(InMemoryPersistence):
    """A key is one key for all commands."""

    async def acquire_idempotency_key(
        self, key: str, command_type: str, *, fingerprint: str, now: datetime, stale_after: timedelta | None
    ) -> IdempotencyAnswer:  # fmt: skip
        return await super().acquire_idempotency_key(
            key, "any", fingerprint=fingerprint, now=now, stale_after=stale_after
        )


class TestForgetsTheCommandType(Doubles, IdempotencySuite):
    double = ForgetsTheCommandType


class TakesAPrefixForAPattern(InMemoryPersistence):
    """The characters of a key prefix mean something."""

    async def list_annotations(self, run_id: str, query: AnnotationQuery) -> list[AnnotationRecord]:
        if query.key_prefix is None or query.key is not None:
            return await super().list_annotations(run_id, query)
        pattern = query.key_prefix.replace("_", "?").replace("%", "*") + "*"
        rows = await super().list_annotations(run_id, replace(query, key_prefix=None))
        return [row for row in rows if fnmatch.fnmatchcase(row.key, pattern)]


class TestTakesAPrefixForAPattern(Doubles, AnnotationSuite):
    double = TakesAPrefixForAPattern


class NamesSkippedAnnotations(InMemoryPersistence):
    """The answer names rows that were skipped."""

    async def append_annotations(self, annotations: Sequence[AnnotationRecord]) -> list[str]:
        await super().append_annotations(annotations)
        return [row.id for row in annotations]


class TestNamesSkippedAnnotations(Doubles, AnnotationSuite):
    double = NamesSkippedAnnotations


class AnswersItsOwnDefinition(InMemoryPersistence):
    """Who inserts a definition is told his own, whatever is stored."""

    async def insert_definition_if_absent(self, definition: DefinitionRecord) -> DefinitionRecord:
        await super().insert_definition_if_absent(definition)
        return definition


class TestAnswersItsOwnDefinition(Doubles, DefinitionSuite):
    double = AnswersItsOwnDefinition


class SortsStagesAsText(InMemoryPersistence):
    """The tenth stage comes before the second."""

    async def get_stages_by_run(self, run_id: str) -> list[StoredStage]:
        stages = await super().get_stages_by_run(run_id)
        return sorted(stages, key=lambda stage: (str(stage.execution_group), str(stage.stage_number)))


class TestSortsStagesAsText(Doubles, StageSuite):
    double = SortsStagesAsText


class IgnoresNone(InMemoryPersistence):
    """A patch can't clear a field."""

    async def update_stage(
        self, stage_record_id: str, patch: StagePatch, *, expected_version: int | None = None
    ) -> None:
        if patch.error is None:
            patch = StagePatch(updated_at=patch.updated_at)
        await super().update_stage(stage_record_id, patch, expected_version=expected_version)


class TestIgnoresNone(Doubles, StageSuite):
    double = IgnoresNone


class SkipsTheWholeBatch(InMemoryPersistence):
    """A log line that exists already takes its batch with it."""

    async def append_logs(self, lines: Sequence[LogRecord]) -> None:
        async with self._statement("look") as tx:
            known = any(tx.get(self.database.logs, line.id) is not None for line in lines)
        if not known:
            await super().append_logs(lines)


class TestSkipsTheWholeBatch(Doubles, LogSuite):
    double = SkipsTheWholeBatch


class WaitsToRead(InMemoryPersistence):
    """Reading for people locks what it reads."""

    async def list_events(self, run_id: str, *, after: int, limit: int) -> list[EventRecord]:
        await self.lock_runs([run_id])
        return await super().list_events(run_id, after=after, limit=limit)


class TestWaitsToRead(Doubles, RunReaderSuite):
    double = WaitsToRead
