"""Running workflows in tests."""

from stagewright.testing.harness.harness import Harness
from stagewright.testing.harness.report import HarnessTickReport, StageOutcome
from stagewright.testing.harness.result import HarnessResult
from stagewright.testing.harness.steps import HarnessSteps

__all__ = ["Harness", "HarnessResult", "HarnessSteps", "HarnessTickReport", "StageOutcome"]
