"""One execution of a stage, as its phases hand it on."""

from dataclasses import dataclass
from typing import Any

from stagewright.definitions import Stage, Workflow
from stagewright.records import Fence, LoadedRun, StoredStage

__all__ = ["Execution", "JobRef"]


@dataclass(frozen=True, slots=True)
class JobRef:
    """A delivered job and the proof of owning it.

    Attributes:
        job_id: The job.
        fence: The fence of the delivery.
    """

    job_id: str
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A stage that is being executed.

    Attributes:
        run_id: The run.
        workflow: The run's workflow.
        stage: The stage.
        record: The stage's record as it was started; its attempt fences the outcome.
        job: The delivery that is answered, if there is one.
        advances: Whether the transaction of the outcome also moves the run on.
        loaded: The run as the claim left it, if that is what this execution began with.
    """

    run_id: str
    workflow: Workflow
    stage: Stage[Any, Any, Any]
    record: StoredStage
    job: JobRef | None
    advances: bool
    loaded: LoadedRun | None = None
