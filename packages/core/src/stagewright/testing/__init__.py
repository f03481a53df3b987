"""What tests of workflows need: a harness, a clock to move, adapters in memory, and looks at candidate builds."""

from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.testing.collecting_sink import CollectingEventSink
from stagewright.testing.consistency import assert_consistent
from stagewright.testing.fake_clock import FakeClock
from stagewright.testing.harness import Harness, HarnessResult, HarnessSteps, HarnessTickReport, StageOutcome
from stagewright.testing.shadow import (
    RunShadowReport,
    ShadowedRun,
    ShadowedVersion,
    ShadowIssue,
    VersionShadowReport,
    assert_shadow_compatible,
    shadow_runs,
    shadow_versions,
)

__all__ = [
    "CollectingEventSink",
    "FakeClock",
    "Harness",
    "HarnessResult",
    "HarnessSteps",
    "HarnessTickReport",
    "InMemoryBlobStore",
    "InMemoryDatabase",
    "InMemoryJobTransport",
    "InMemoryPersistence",
    "InMemoryStepLedger",
    "RunShadowReport",
    "ShadowIssue",
    "ShadowedRun",
    "ShadowedVersion",
    "StageOutcome",
    "VersionShadowReport",
    "assert_consistent",
    "assert_shadow_compatible",
    "shadow_runs",
    "shadow_versions",
]
