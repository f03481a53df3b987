"""Holding a candidate against what is stored of single runs."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from stagewright.definitions import Workflow
from stagewright.errors import (
    BlobNotFoundError,
    CapabilityMissingError,
    InvalidSettingError,
    RunNotFoundError,
    SpilledPayloadUnavailableError,
)
from stagewright.hosting.registries import Workflows, registry_of
from stagewright.json_values import Json
from stagewright.ports import BlobStore, Persistence, RunReader, StepLedger, WorkflowRegistry
from stagewright.records import LoadedRun, RunQuery, StepRecord, StoredStage
from stagewright.runtime.claim_check import load_spilled
from stagewright.status import Status
from stagewright.testing.shadow.report import RunShadowReport, ShadowedRun
from stagewright.testing.shadow.run_rules import StoredRun, issues_of
from stagewright.testing.shadow.snapshots import PinnedStructure, checked_store, pinned_structure
from stagewright.testing.shadow.versions import ACTIVE

__all__ = ["shadow_runs"]

_AT_ONCE: Final = 100


async def shadow_runs(
    persistence: Persistence,
    candidates: Workflows,
    run_ids: Iterable[str] | None = None,
    *,
    step_ledger: StepLedger | None = None,
    blob_store: BlobStore | None = None,
) -> RunShadowReport:
    """Hold a candidate build against what is stored of runs: inputs, stages, configs, outputs, steps; only reads.

    Args:
        persistence: The store, such as `kernel.ports.persistence`; a login that may only read will do.
        candidates: The workflows of the candidate build.
        run_ids: The runs; None is every run that hasn't ended.
        step_ledger: Where durable steps are kept; without it they are left out.
        blob_store: Where large outputs are kept; without it they are left out. One that isn't there is no finding.

    Raises:
        RunNotFoundError: If there is no run of one of the ids.
        CapabilityMissingError: If `run_ids` is None and the store can't list runs.
        DefinitionError: If `candidates` are none.
        InvalidSettingError: If `persistence` is no store, or `run_ids` is one text instead of several.
        SpilledPayloadUnavailableError: If the blob store can't be read.
    """
    registry = registry_of(candidates, subject="shadow_runs")
    checked_store(persistence)
    if isinstance(run_ids, str):
        raise InvalidSettingError("run_ids", run_ids, "must be a list of ids, also of a single one")
    reader = _Reader(persistence, step_ledger, blob_store)
    wanted = [run_id async for run_id in _active_runs(persistence)] if run_ids is None else [*run_ids]
    runs: list[ShadowedRun] = []
    for start in range(0, len(wanted), _AT_ONCE):
        batch = wanted[start : start + _AT_ONCE]
        loaded = {one.run.id: one for one in await persistence.load_runs(batch)}
        for run_id in batch:
            if run_id in loaded:
                runs.append(await reader.shadowed(loaded[run_id], registry))
            elif run_ids is not None:
                raise RunNotFoundError(run_id)
    compatible = sum(run.compatible for run in runs)
    return RunShadowReport(runs=tuple(runs), compatible=compatible, incompatible=len(runs) - compatible)


async def _active_runs(persistence: Persistence) -> AsyncIterator[str]:
    if not isinstance(persistence, RunReader):
        raise CapabilityMissingError(type(persistence).__name__, "RunReader", "give shadow_runs the run_ids")
    cursor: str | None = None
    while True:
        page = await persistence.list_runs(RunQuery(statuses=ACTIVE), limit=_AT_ONCE, cursor=cursor)
        for run in page.items:
            yield run.id
        cursor = page.next_cursor
        if cursor is None:
            return


class _Reader:
    """Reads what belongs to a run, and each version's structure once."""

    def __init__(
        self, persistence: Persistence, step_ledger: StepLedger | None, blob_store: BlobStore | None
    ) -> None:
        self._persistence = persistence
        self._step_ledger = step_ledger
        self._blob_store = blob_store
        self._pinned: dict[tuple[str, str | None], PinnedStructure | None] = {}

    async def shadowed(self, loaded: LoadedRun, candidates: WorkflowRegistry[Workflow]) -> ShadowedRun:
        run = loaded.run
        candidate = candidates.get(run.workflow_id)
        return ShadowedRun(
            run_id=run.id,
            workflow_id=run.workflow_id,
            version=run.definition_version,
            status=run.status,
            issues=issues_of(await self._stored(loaded, candidate), candidate),
        )

    async def _stored(self, loaded: LoadedRun, candidate: Workflow | None) -> StoredRun:
        """What a candidate is held against, and no more than that."""
        run, stages = loaded.run, loaded.stages
        if candidate is None:
            return StoredRun(run=run, stages=stages)
        kept = [stage for stage in stages if stage.stage_id in candidate.stage_ids]
        gone = [stage for stage in stages if stage.stage_id not in candidate.stage_ids]
        return StoredRun(
            run=run,
            stages=stages,
            outputs=await self._outputs(kept),
            steps={stage.id: await self._steps(stage) for stage in gone},
            pinned=await self._structure(run.workflow_id, run.definition_version),
        )

    async def _structure(self, workflow_id: str, version: str | None) -> PinnedStructure | None:
        place = (workflow_id, version)
        if place not in self._pinned:
            self._pinned[place] = await pinned_structure(self._persistence, *place)
        return self._pinned[place]

    async def _steps(self, stage: StoredStage) -> list[StepRecord]:
        return [] if self._step_ledger is None else await self._step_ledger.list(stage.id)

    async def _outputs(self, stages: Iterable[StoredStage]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for stage in stages:
            if stage.status is not Status.COMPLETED:
                continue
            if stage.output_claim is None:
                found[stage.stage_id] = stage.output
            elif self._blob_store is not None:
                try:
                    found[stage.stage_id] = await load_spilled(self._blob_store, stage.output_claim)
                except SpilledPayloadUnavailableError as error:
                    if not isinstance(error.__cause__, BlobNotFoundError):
                        raise
        return found
