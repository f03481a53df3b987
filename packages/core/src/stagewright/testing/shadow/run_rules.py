"""What keeps a candidate from carrying on a run, rule by rule; each answers with issues, none for what fits."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stagewright.definitions import Stage, Workflow, drift_between
from stagewright.errors import DefinitionError, SchemaMismatchError
from stagewright.json_values import Json
from stagewright.records import RunRecord, StepRecord, StoredStage
from stagewright.status import Status
from stagewright.testing.shadow.report import ShadowIssue, ShadowIssueCode
from stagewright.testing.shadow.snapshots import PinnedStructure

__all__ = ["StoredRun", "issues_of"]

_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What is stored of a run.

    Attributes:
        run: The run.
        stages: Its stages.
        outputs: The outputs of its completed stages that the candidate has too, by stage id; one that can't be had is
            left out.
        steps: The durable steps of its stages that the candidate doesn't have, by stage record.
        pinned: The structure that it is pinned to; None if it has none.
    """

    run: RunRecord
    stages: Sequence[StoredStage]
    outputs: Mapping[str, Json] = field(default_factory=dict)
    steps: Mapping[str, Sequence[StepRecord]] = field(default_factory=dict)
    pinned: PinnedStructure | None = None


def issues_of(stored: StoredRun, candidate: Workflow | None) -> tuple[ShadowIssue, ...]:
    """Everything that keeps a candidate from carrying on a run, by rule."""
    if candidate is None:
        workflow_id = stored.run.workflow_id
        return (_issue("WORKFLOW_MISSING", None, f"the candidate has no workflow {workflow_id!r}"),)
    found = [
        *_places(stored, candidate),
        *_insertions(stored, candidate),
        *_input(stored, candidate),
        *_configs(stored, candidate),
        *_outputs(stored, candidate),
        *_steps(stored),
    ]
    covered = {issue.stage_id for issue in found}
    return (*found, *_drifts(stored, candidate, covered))


def _places(stored: StoredRun, candidate: Workflow) -> Iterator[ShadowIssue]:
    for record in stored.stages:
        stage_id = record.stage_id
        if stage_id not in candidate.stage_ids:
            told = f"the run has stage {stage_id!r} ({record.status}), and the candidate has no such stage"
            yield _issue("STAGE_REMOVED", stage_id, told)
            continue
        group, number = candidate.plan.group_of(stage_id), candidate.plan.stage_number(stage_id)
        if record.execution_group != group:
            told = f"stage {stage_id!r} is in group {record.execution_group} of the run, and in group {group} here"
            yield _issue("EXECUTION_GROUP_CHANGED", stage_id, told)
        if record.stage_number != number:
            told = f"stage {stage_id!r} is number {record.stage_number} of the run, and number {number} here"
            yield _issue("STAGE_ORDER_CHANGED", stage_id, told)


def _insertions(stored: StoredRun, candidate: Workflow) -> Iterator[ShadowIssue]:
    begun = [record.execution_group for record in stored.stages if record.status is not Status.PENDING]
    cursor = max(begun, default=0)
    known = {record.stage_id for record in stored.stages}
    for stage_id in candidate.stage_ids:
        group = candidate.plan.group_of(stage_id)
        if stage_id not in known and group <= cursor:
            told = (
                f"stage {stage_id!r} is in group {group}, and the run has come to group {cursor} without it"
            )
            yield _issue("STAGE_INSERTED_BEFORE_CURSOR", stage_id, told)


def _input(stored: StoredRun, candidate: Workflow) -> Iterator[ShadowIssue]:
    """Bodies of any stage may read the run's input."""
    problem = _misfit(
        lambda value: candidate.input_schema.load(value, what="the input of the run"), stored.run.input
    )
    if problem is not None:
        yield _issue("INPUT_REJECTED", None, problem)


def _configs(stored: StoredRun, candidate: Workflow) -> Iterator[ShadowIssue]:
    for stage in candidate.stages:
        problem = _misfit(stage.parse_config, stored.run.config.get(stage.id, {}))
        if problem is not None:
            yield _issue("CONFIG_REJECTED", stage.id, problem)


def _outputs(stored: StoredRun, candidate: Workflow) -> Iterator[ShadowIssue]:
    for stage_id, output in stored.outputs.items():
        stage: Stage[Any, Any, Any] = candidate.stage(stage_id)
        what = f"the output of stage {stage_id!r}"
        problem = _misfit(lambda value, of=stage, what=what: of.output_schema.load(value, what=what), output)
        if problem is not None:
            yield _issue("OUTPUT_REJECTED", stage_id, problem)


def _steps(stored: StoredRun) -> Iterator[ShadowIssue]:
    for record in stored.stages:
        steps = stored.steps.get(record.id, ())
        if steps:
            named = ", ".join(f"{step.step_id!r} ({step.status})" for step in steps[:_MOST_NAMED])
            more = "" if len(steps) <= _MOST_NAMED else f" and {len(steps) - _MOST_NAMED} more"
            told = f"nothing in the candidate asks for the steps of stage {record.stage_id!r}: {named}{more}"
            yield _issue("STEP_LEDGER_ORPHANED", record.stage_id, told)


def _drifts(stored: StoredRun, candidate: Workflow, covered: Collection[str | None]) -> Iterator[ShadowIssue]:
    """What else differs in a stage that the run's own structure has."""
    if stored.pinned is None:
        return
    if stored.pinned.is_reused_by(candidate):
        told = (
            f"the candidate has another structure under the run's own version {stored.pinned.version!r}; "
            "declare a new version with .version(...)"
        )
        yield _issue("SNAPSHOT_DRIFT", None, told)
    drifts: dict[str, list[str]] = {}
    for drift in drift_between(stored.pinned.snapshot, candidate.snapshot()):
        if drift.stage_id is not None and drift.stage_id not in covered and drift.code != "STAGE_ADDED":
            drifts.setdefault(drift.stage_id, []).append(f"{drift} ({drift.code})")
    for stage_id, found in drifts.items():
        yield _issue("SNAPSHOT_DRIFT", stage_id, ", ".join(found))


def _misfit(read: Any, value: Json) -> str | None:  # Any: a function of JSON that may raise
    try:
        read(value)
    except SchemaMismatchError as error:
        return str(error)
    except DefinitionError as error:
        return f"it can't be read: {error}"
    return None


def _issue(code: ShadowIssueCode, stage_id: str | None, message: str) -> ShadowIssue:
    return ShadowIssue(code=code, stage_id=stage_id, message=message)
