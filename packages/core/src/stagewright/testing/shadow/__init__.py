"""Holding a candidate build against the runs of a store, before it is deployed."""

from stagewright.testing.shadow.report import (
    RunShadowReport,
    ShadowedRun,
    ShadowedVersion,
    ShadowIssue,
    ShadowIssueCode,
    VersionShadowReport,
    assert_shadow_compatible,
)
from stagewright.testing.shadow.runs import shadow_runs
from stagewright.testing.shadow.versions import shadow_versions

__all__ = [
    "RunShadowReport",
    "ShadowIssue",
    "ShadowIssueCode",
    "ShadowedRun",
    "ShadowedVersion",
    "VersionShadowReport",
    "assert_shadow_compatible",
    "shadow_runs",
    "shadow_versions",
]
