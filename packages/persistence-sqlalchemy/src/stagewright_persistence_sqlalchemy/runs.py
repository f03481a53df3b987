"""Runs, their stages, their definitions and their log lines."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from stagewright.errors import RecordNotFoundError
from stagewright.records import (
    DefinitionRecord,
    LoadedRun,
    LogRecord,
    RunPatch,
    RunRecord,
    Serves,
    StagePatch,
    StoredStage,
    VersionCounts,
    set_fields,
)
from stagewright.status import Status
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.id_lists import id_list
from stagewright_persistence_sqlalchemy.rows import (
    Row,
    column_values,
    definition_of,
    joined_run_of,
    joined_stage_of,
    run_of,
    stage_of,
)
from stagewright_persistence_sqlalchemy.statements import deletions, reads, writes_at_once
from stagewright_persistence_sqlalchemy.statements.claims import claim_pending_runs, serves_parameters
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

__all__ = ["RunStores"]

_KEPT_BY_A_STAGE = frozenset({"id", "run_id", "stage_id", "created_at", "version"})


class RunStores(Connection):
    """`RunStore`, `RunClaims`, `StageStore`, `DefinitionStore` and `LogStore`."""

    async def create_run(self, run: RunRecord) -> None:
        """Insert a run."""
        async with self._writing() as tx:
            tx.pending.insert(PLAIN_TABLES.runs, column_values(_fields(run)) | {"event_seq": 0})
            tx.know_sequence(run.id, 0)

    async def update_run(self, run_id: str, patch: RunPatch, *, expected_version: int | None = None) -> None:
        """Change the fields that the patch sets, and raise the version by one."""
        async with self._writing() as tx:
            tx.pending.update(
                PLAIN_TABLES.runs, run_id, column_values(set_fields(patch)), expected_version=expected_version
            )

    async def get_run(self, run_id: str) -> RunRecord | None:
        """The run, or None."""
        found = await self._fetch(reads.run_by_id(self._tables), {"id": run_id})
        return run_of(found[0]) if found else None

    async def get_run_status(self, run_id: str) -> Status | None:
        """The run's status, or None."""
        found = await self._fetch(reads.run_status(self._tables), {"id": run_id})
        return Status(found[0]["status"]) if found else None

    async def lock_runs(self, run_ids: Collection[str]) -> list[RunRecord]:
        """Lock runs in the order of their ids, and read them as they are once locked."""
        ids = id_list(sorted(set(run_ids)))
        if not ids:
            return []
        rows = await self._fetch(reads.lock_runs(self._tables, len(ids)), ids)
        if self._transaction is not None:
            for row in rows:
                self._transaction.know_sequence(row["id"], row["event_seq"])
        return [run_of(row) for row in rows]

    async def load_runs(self, run_ids: Collection[str], *, lock: bool = False) -> list[LoadedRun]:
        """Runs with their stages, locked until the transaction ends where `lock` is set."""
        ids = id_list(sorted(set(run_ids)))
        if not ids:
            return []
        tx = self._transaction
        if tx is not None and not tx.pending and tx.just_claimed.keys() >= set(run_ids):
            return [tx.just_claimed[run_id] for run_id in sorted(set(run_ids))]
        locks = lock and tx is not None
        if locks and not self._database.kind.locks_joined:
            # What is read after this is as new as the locks are.
            await self.lock_runs(run_ids)
            locks = False
        rows = await self._fetch(
            reads.load_runs(self._tables, self._database.kind, len(ids), lock=locks), ids
        )
        if locks and tx is not None:
            for row in rows:
                tx.know_sequence(row["r_id"], row["r_event_seq"])
            if not all(row.get("is_current", True) for row in rows):
                return await self._load_after_waiting(rows)
        return _loaded(rows)

    async def expect_run(self, loaded: LoadedRun) -> None:
        """Refuse what is sent from now on unless a run is as it was loaded."""
        run = loaded.run
        async with self._writing() as tx:
            tx.know_sequence(run.id, loaded.last_sequence)
            tx.pending.expect_run(run.id, version=run.version, last_sequence=loaded.last_sequence)

    async def claim_pending_runs(self, limit: int, *, now: datetime, serves: Serves) -> list[RunRecord]:
        """Make up to `limit` PENDING runs RUNNING, passing over those that another transaction holds."""
        if limit < 1:
            return []
        pairs = None if serves is None else [(pair.workflow_id, pair.version) for pair in serves]
        if pairs == []:
            return []
        statement = claim_pending_runs(
            self._tables, self._database.kind, None if pairs is None else len(pairs)
        )
        async with self._writing() as tx:
            parameters = {"limit": limit, "now": now} | serves_parameters(pairs or [])
            rows = await tx.take(statement, parameters)
            claimed = [run_of(row) for row in rows]
            for run, row in zip(claimed, rows, strict=True):
                tx.know_sequence(run.id, row["event_seq"])
                if not row.get("has_stages", True):
                    tx.just_claimed[run.id] = LoadedRun(run, (), row["event_seq"])
        return sorted(claimed, key=lambda run: (-run.priority, run.created_at, run.id))

    async def create_stage(self, stage: StoredStage) -> None:
        """Insert a stage."""
        async with self._writing() as tx:
            tx.pending.insert(PLAIN_TABLES.stages, column_values(_fields(stage)))

    async def upsert_stage(self, stage: StoredStage) -> StoredStage:
        """Insert a stage, or write it over the one of that id that its run has, under the run's lock."""
        place = {"run_id": stage.run_id, "stage_id": stage.stage_id}
        async with self._writing() as tx:
            # Nobody inserts a stage of a run that is locked: the reference to the run would have to wait.
            if not await self._bound_to(tx).lock_runs((stage.run_id,)):
                raise RecordNotFoundError("run", stage.run_id)
            given = column_values(_fields(stage))
            there = await tx.fetch(reads.stage_by_name(self._tables), place)
            if there:
                values = {name: value for name, value in given.items() if name not in _KEPT_BY_A_STAGE}
                tx.pending.update(PLAIN_TABLES.stages, there[0]["id"], values)
            else:
                tx.pending.insert(PLAIN_TABLES.stages, given)
            return stage_of((await tx.fetch(reads.stage_by_name(self._tables), place))[0])

    async def update_stage(
        self, stage_record_id: str, patch: StagePatch, *, expected_version: int | None = None
    ) -> None:
        """Change the fields that the patch sets, and raise the version by one."""
        async with self._writing() as tx:
            values = column_values(set_fields(patch))
            tx.pending.update(PLAIN_TABLES.stages, stage_record_id, values, expected_version=expected_version)

    async def nudge_stage(self, stage_record_id: str, at: datetime) -> None:
        """Let a stage wait no longer than until `at`, without a new version."""
        async with self._writing() as tx:
            if not await tx.execute(
                writes_at_once.nudge_stage(self._tables), {"of_id": stage_record_id, "at": at}
            ):
                raise RecordNotFoundError("stage", stage_record_id)

    async def delete_stage(self, stage_record_id: str) -> None:
        """Delete a stage; its annotations stay."""
        async with self._writing() as tx:
            await tx.execute(deletions.delete_stage(self._tables), {"of_id": stage_record_id})

    async def get_stage(self, run_id: str, stage_id: str) -> StoredStage | None:
        """The stage of that run, or None."""
        found = await self._fetch(reads.stage_by_name(self._tables), {"run_id": run_id, "stage_id": stage_id})
        return stage_of(found[0]) if found else None

    async def get_stages_by_run(self, run_id: str) -> list[StoredStage]:
        """All stages of a run, by execution group, then by stage number."""
        return [
            stage_of(row) for row in await self._fetch(reads.stages_of_run(self._tables), {"run_id": run_id})
        ]

    async def supports_definition_versioning(self) -> bool:
        """True."""
        return True

    async def ensure_definition_versioning_detected(self) -> bool:
        """True: a database of another schema isn't opened."""
        return True

    async def insert_definition_if_absent(self, definition: DefinitionRecord) -> DefinitionRecord:
        """Insert a definition unless it is there; the first writer's row stays."""
        known = await self.get_definition(definition.workflow_id, definition.version)
        if known is not None:
            return known
        async with self._writing() as tx:
            statement = writes_at_once.insert_definition(self._tables, self._database.kind)
            if await tx.execute(statement, column_values(_fields(definition))):
                tx.new_definitions.remember(definition)
                return definition
            key = {"workflow_id": definition.workflow_id, "version": definition.version}
            stored = definition_of((await tx.fetch(reads.standing_definition(self._tables), key))[0])
        self._learn(stored)
        return stored

    async def get_definition(self, workflow_id: str, version: str) -> DefinitionRecord | None:
        """The stored definition, or None."""
        known = self._database.definitions.recall(workflow_id, version)
        if known is not None:
            return known
        key = {"workflow_id": workflow_id, "version": version}
        found = await self._fetch(reads.definition_by_key(self._tables), key)
        if not found:
            return None
        stored = definition_of(found[0])
        if self._transaction is None or not self._transaction.new_definitions.recall(workflow_id, version):
            self._learn(stored)
        return stored

    def _learn(self, stored: DefinitionRecord) -> None:
        """Remember a row that somebody has committed: it never changes, and isn't rolled back any more."""
        # What is seen in the caller's transaction may have been written in it.
        if self._borrowed is None:
            self._database.definitions.remember(stored)

    async def count_runs_by_definition_version(
        self,
        *,
        workflow_id: str | None = None,
        definition_version: str | None = None,
        only_active: bool = False,
    ) -> list[VersionCounts]:
        """How many runs there are of each workflow and version, by status."""
        given = {"workflow_id": workflow_id, "definition_version": definition_version}
        wanted = {name: value for name, value in given.items() if value is not None}
        rows = await self._fetch(
            reads.runs_by_version(self._tables, *wanted, only_active=only_active), wanted
        )
        of_version: dict[tuple[str, str | None], list[Row]] = {}
        for row in rows:
            of_version.setdefault((row["workflow_id"], row["definition_version"]), []).append(row)
        return [
            VersionCounts(
                workflow_id=of_workflow,
                definition_version=version,
                counts={Status(row["status"]): row["total"] for row in members},
                oldest_created_at=min(row["oldest"] for row in members),
            )
            for (of_workflow, version), members in of_version.items()
        ]

    async def append_logs(self, lines: Sequence[LogRecord]) -> None:
        """Insert log lines; one that is there already is skipped."""
        if lines:
            async with self._writing() as tx:
                for line in lines:
                    tx.pending.insert(PLAIN_TABLES.logs, column_values(_fields(line)), skip_existing=True)

    async def _load_after_waiting(self, rows: Sequence[Row]) -> list[LoadedRun]:
        runs = {row["r_id"]: row for row in rows}
        ids = id_list(list(runs))
        stages = await self._fetch(reads.stages_of_runs(self._tables, len(ids)), ids)
        of_run: dict[str, list[StoredStage]] = {run_id: [] for run_id in runs}
        for row in stages:
            of_run[row["run_id"]].append(stage_of(row))
        return [
            LoadedRun(joined_run_of(row), tuple(of_run[run_id]), row["r_event_seq"])
            for run_id, row in runs.items()
        ]


def _loaded(rows: Sequence[Row]) -> list[LoadedRun]:
    of_run: dict[str, list[Row]] = {}
    for row in rows:
        of_run.setdefault(row["r_id"], []).append(row)
    return [
        LoadedRun(
            joined_run_of(members[0]),
            tuple(filter(None, map(joined_stage_of, members))),
            members[0]["r_event_seq"],
        )
        for members in of_run.values()
    ]


def _fields(record: Any) -> dict[str, Any]:  # Any: every record has slots of its own
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
