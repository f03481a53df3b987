"""Persistences with one clause about claims, keys or listings broken; collected by an inner run alone."""

import asyncio
import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from stagewright.json_values import Json
from stagewright.memory import InMemoryPersistence
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
    VersionCounts,
)
from stagewright.status import Status
from stagewright_conformance import (
    AnnotationSuite,
    DefinitionSuite,
    IdempotencySuite,
    LogSuite,
    RunClaimSuite,
    RunReaderSuite,
    StageSuite,
)
from stagewright_test_support.doubles import PersistenceDoubles


class ClaimsOneRunTwice(InMemoryPersistence):
    """Pending runs are found first and taken later, whoever has taken them meanwhile."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        page = await self.list_runs(RunQuery(statuses=[Status.PENDING]), limit=1_000, cursor=None)
        found = sorted(page.items, key=lambda run: (-run.priority, run.created_at))[:limit]
        patch = RunPatch(updated_at=now, status=Status.RUNNING, started_at=now)
        for run in found:
            await self.update_run(run.id, patch)
        return [replace(run, status=Status.RUNNING) for run in found]


class TestClaimsOneRunTwice(PersistenceDoubles, RunClaimSuite):
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


class TestIgnoresPriority(PersistenceDoubles, RunClaimSuite):
    double = IgnoresPriority


class WaitsForHeldRuns(InMemoryPersistence):
    """A claimer waits for rows that another transaction holds."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        page = await self.list_runs(RunQuery(statuses=[Status.PENDING]), limit=1_000, cursor=None)
        await self.lock_runs([run.id for run in page.items])
        return await super().claim_pending_runs(limit, now=now, serves=serves)


class TestWaitsForHeldRuns(PersistenceDoubles, RunClaimSuite):
    double = WaitsForHeldRuns


class TakesNothingForEverything(InMemoryPersistence):
    """Who serves nothing gets everything."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        return await super().claim_pending_runs(limit, now=now, serves=serves or None)


class TestTakesNothingForEverything(PersistenceDoubles, RunClaimSuite):
    double = TakesNothingForEverything


class RestartsStartedRuns(InMemoryPersistence):
    """A claim overwrites the time of the first start."""

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        claimed = await super().claim_pending_runs(limit, now=now, serves=serves)
        return [replace(run, started_at=now) for run in claimed]


class TestRestartsStartedRuns(PersistenceDoubles, RunClaimSuite):
    double = RestartsStartedRuns


class LetsManyTakeAStaleKey(InMemoryPersistence):
    """A stale key is judged by one call and taken by another."""

    async def acquire_idempotency_key(
        self, key: str, command_type: str, *, fingerprint: str, now: datetime, stale_after: timedelta | None,
        run_id: str | None = None,
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


class TestLetsManyTakeAStaleKey(PersistenceDoubles, IdempotencySuite):
    double = LetsManyTakeAStaleKey


class ReleasesAnothersKey(InMemoryPersistence):
    """Who has lost a key can still give it up."""

    async def release_idempotency_key(self, key: str, command_type: str, *, taken_at: datetime) -> None:
        async with self._statement("release") as tx:
            row = await tx.lock_row(self.database.idempotency_keys, (key, command_type))
            if row is not None and not row.completed:
                tx.delete(self.database.idempotency_keys, (key, command_type))


class TestReleasesAnothersKey(PersistenceDoubles, IdempotencySuite):
    double = ReleasesAnothersKey


class ForgetsANullResult(InMemoryPersistence):
    """A command that answered null has no result."""

    async def complete_idempotency_key(
        self, key: str, command_type: str, *, taken_at: datetime, result: Json, run_id: str | None = None
    ) -> None:
        if result is not None:
            await super().complete_idempotency_key(key, command_type, taken_at=taken_at, result=result)


class TestForgetsANullResult(PersistenceDoubles, IdempotencySuite):
    double = ForgetsANullResult


class AnswersWithoutWaiting(InMemoryPersistence):
    """A key that an open transaction took is outside of that transaction."""

    async def acquire_idempotency_key(
        self, key: str, command_type: str, *, fingerprint: str, now: datetime, stale_after: timedelta | None,
        run_id: str | None = None,
    ) -> IdempotencyAnswer:  # fmt: skip
        outside = InMemoryPersistence(self.database)
        return await outside.acquire_idempotency_key(
            key, command_type, fingerprint=fingerprint, now=now, stale_after=stale_after
        )


class TestAnswersWithoutWaiting(PersistenceDoubles, IdempotencySuite):
    double = AnswersWithoutWaiting


class ForgetsTheCommandType(InMemoryPersistence):
    """A key is one key for all commands."""

    async def acquire_idempotency_key(
        self, key: str, command_type: str, *, fingerprint: str, now: datetime, stale_after: timedelta | None,
        run_id: str | None = None,
    ) -> IdempotencyAnswer:  # fmt: skip
        return await super().acquire_idempotency_key(
            key, "any", fingerprint=fingerprint, now=now, stale_after=stale_after
        )


class TestForgetsTheCommandType(PersistenceDoubles, IdempotencySuite):
    double = ForgetsTheCommandType


class TakesAPrefixForAPattern(InMemoryPersistence):
    """The characters of a key prefix mean something."""

    async def list_annotations(self, run_id: str, query: AnnotationQuery) -> list[AnnotationRecord]:
        if query.key_prefix is None or query.key is not None:
            return await super().list_annotations(run_id, query)
        pattern = query.key_prefix.replace("_", "?").replace("%", "*") + "*"
        rows = await super().list_annotations(run_id, replace(query, key_prefix=None))
        return [row for row in rows if fnmatch.fnmatchcase(row.key, pattern)]


class TestTakesAPrefixForAPattern(PersistenceDoubles, AnnotationSuite):
    double = TakesAPrefixForAPattern


class NamesSkippedAnnotations(InMemoryPersistence):
    """The answer names rows that were skipped."""

    async def append_annotations(self, annotations: Sequence[AnnotationRecord]) -> list[str]:
        await super().append_annotations(annotations)
        return [row.id for row in annotations]


class TestNamesSkippedAnnotations(PersistenceDoubles, AnnotationSuite):
    double = NamesSkippedAnnotations


class HasNoVersions(InMemoryPersistence):
    """Runs are said to keep no version."""

    async def supports_definition_versioning(self) -> bool:
        return False


class TestHasNoVersions(PersistenceDoubles, DefinitionSuite):
    double = HasNoVersions


class AnswersItsOwnDefinition(InMemoryPersistence):
    """Who inserts a definition is told his own, whatever is stored."""

    async def insert_definition_if_absent(self, definition: DefinitionRecord) -> DefinitionRecord:
        await super().insert_definition_if_absent(definition)
        return definition


class TestAnswersItsOwnDefinition(PersistenceDoubles, DefinitionSuite):
    double = AnswersItsOwnDefinition


class SortsStagesAsText(InMemoryPersistence):
    """The tenth stage comes before the second."""

    async def get_stages_by_run(self, run_id: str) -> list[StoredStage]:
        stages = await super().get_stages_by_run(run_id)
        return sorted(stages, key=lambda stage: (str(stage.execution_group), str(stage.stage_number)))


class TestSortsStagesAsText(PersistenceDoubles, StageSuite):
    double = SortsStagesAsText


class IgnoresNone(InMemoryPersistence):
    """A patch can't clear a field."""

    async def update_stage(
        self, stage_record_id: str, patch: StagePatch, *, expected_version: int | None = None
    ) -> None:
        if patch.error is None:
            patch = StagePatch(updated_at=patch.updated_at)
        await super().update_stage(stage_record_id, patch, expected_version=expected_version)


class TestIgnoresNone(PersistenceDoubles, StageSuite):
    double = IgnoresNone


class SkipsTheWholeBatch(InMemoryPersistence):
    """A log line that exists already takes its batch with it."""

    async def append_logs(self, lines: Sequence[LogRecord]) -> None:
        async with self._statement("look") as tx:
            known = any(tx.get(self.database.logs, line.id) is not None for line in lines)
        if not known:
            await super().append_logs(lines)


class TestSkipsTheWholeBatch(PersistenceDoubles, LogSuite):
    double = SkipsTheWholeBatch


class WaitsToRead(InMemoryPersistence):
    """Reading for people locks what it reads."""

    async def list_events(self, run_id: str, *, after: int, limit: int) -> list[EventRecord]:
        await self.lock_runs([run_id])
        return await super().list_events(run_id, after=after, limit=limit)


class TestWaitsToRead(PersistenceDoubles, RunReaderSuite):
    double = WaitsToRead


class MixesWorkflows(InMemoryPersistence):
    """Runs are counted by version alone, whatever their workflow."""

    async def count_runs_by_definition_version(
        self,
        *,
        workflow_id: str | None = None,
        definition_version: str | None = None,
        only_active: bool = False,
    ) -> list[VersionCounts]:
        counted = await super().count_runs_by_definition_version(
            definition_version=definition_version, only_active=only_active
        )
        return [replace(one, workflow_id=workflow_id or one.workflow_id) for one in counted]


class CountsWhatHasEnded(InMemoryPersistence):
    """Runs that have ended are counted among the active ones."""

    async def count_runs_by_definition_version(
        self,
        *,
        workflow_id: str | None = None,
        definition_version: str | None = None,
        only_active: bool = False,
    ) -> list[VersionCounts]:
        return await super().count_runs_by_definition_version(
            workflow_id=workflow_id, definition_version=definition_version
        )


class TestCountsWhatHasEnded(PersistenceDoubles, DefinitionSuite):
    double = CountsWhatHasEnded


class TestMixesWorkflows(PersistenceDoubles, DefinitionSuite):
    double = MixesWorkflows
