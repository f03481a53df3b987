"""What comes of holding a candidate build against runs that another build has begun."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stagewright.definitions import StructureDrift
from stagewright.errors import InvalidSettingError, ShadowIncompatibleError
from stagewright.status import Status

__all__ = [
    "RunShadowReport",
    "ShadowIssue",
    "ShadowIssueCode",
    "ShadowedRun",
    "ShadowedVersion",
    "VersionShadowReport",
    "assert_shadow_compatible",
]

ShadowIssueCode: TypeAlias = Literal[
    "WORKFLOW_MISSING",
    "STAGE_REMOVED",
    "EXECUTION_GROUP_CHANGED",
    "STAGE_ORDER_CHANGED",
    "STAGE_INSERTED_BEFORE_CURSOR",
    "INPUT_REJECTED",
    "CONFIG_REJECTED",
    "OUTPUT_REJECTED",
    "STEP_LEDGER_ORPHANED",
    "SNAPSHOT_DRIFT",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowIssue:
    """One thing that keeps a candidate from carrying on a run.

    Attributes:
        code: What kind of thing.
        stage_id: The stage it is about; None for the workflow itself.
        message: The same in words.
    """

    code: ShadowIssueCode
    stage_id: str | None
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowedVersion:
    """A candidate against the structure of one version.

    Attributes:
        workflow_id: The workflow.
        version: The version; None for runs that are pinned to none, which have no structure to compare with.
        run_count: How many runs are pinned to it, of those that were asked about.
        drifts: Every difference between its structure and the candidate's.
        compatible: Whether none of them can matter to a run: stages after all that the version has can't, unless the
            version's name is reused.
        is_reused: Whether the candidate has another structure under this very version, which no kernel accepts: it
            leaves the version's runs alone and refuses new ones.
    """

    workflow_id: str
    version: str | None
    run_count: int
    drifts: tuple[StructureDrift, ...]
    compatible: bool
    is_reused: bool = False

    def __str__(self) -> str:
        told = "; ".join(f"{drift.code}: {drift}" for drift in self.drifts) or "no difference"
        if self.is_reused:
            told += "; that is under the version's own name: declare a new version with .version(...)"
        runs = f"{self.run_count} run{'' if self.run_count == 1 else 's'}"
        return f"{self.workflow_id} {self.version or 'without a version'} ({runs}): {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionShadowReport:
    """A candidate against all versions that have runs.

    Attributes:
        supported: Whether the store knows of versions; every store of Stagewright's does.
        versions: Each version, by workflow, the newest first.
        incompatible: How many of them the candidate may not be able to carry on.
    """

    supported: bool
    versions: tuple[ShadowedVersion, ...]
    incompatible: int

    @property
    def ok(self) -> bool:
        """Whether the candidate can carry on the runs of every version."""
        return self.incompatible == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowedRun:
    """A candidate against what is stored of one run.

    Attributes:
        run_id: The run.
        workflow_id: Its workflow.
        version: The version that it is pinned to, if to any.
        status: Its status.
        issues: What is in the way of carrying it on.
    """

    run_id: str
    workflow_id: str
    version: str | None
    status: Status
    issues: tuple[ShadowIssue, ...]

    @property
    def compatible(self) -> bool:
        """Whether the candidate can carry it on."""
        return not self.issues

    def __str__(self) -> str:
        told = "; ".join(map(str, self.issues)) or "compatible"
        return f"run {self.run_id} of {self.workflow_id} ({self.status}): {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShadowReport:
    """A candidate against runs.

    Attributes:
        runs: Each run, in the order in which they were asked about.
        compatible: How many of them the candidate can carry on.
        incompatible: How many it can't.
    """

    runs: tuple[ShadowedRun, ...]
    compatible: int
    incompatible: int

    @property
    def ok(self) -> bool:
        """Whether the candidate can carry on all of them."""
        return self.incompatible == 0


def assert_shadow_compatible(report: VersionShadowReport | RunShadowReport) -> None:
    """Fail with one line for each version or run that the candidate can't carry on.

    Raises:
        ShadowIncompatibleError: If there is one; it is an AssertionError too.
        InvalidSettingError: If it is given no report.
    """
    __tracebackhide__ = True
    if not isinstance(report, VersionShadowReport | RunShadowReport):
        problem = "must be what shadow_versions or shadow_runs answers; perhaps an await is missing"
        raise InvalidSettingError("report", report, problem)
    failures = tuple(_failures(report))
    if failures:
        raise ShadowIncompatibleError(failures)


def _failures(report: VersionShadowReport | RunShadowReport) -> Iterator[str]:
    members = report.versions if isinstance(report, VersionShadowReport) else report.runs
    return (" ".join(str(one).split()) for one in members if not one.compatible)
