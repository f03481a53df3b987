"""`ctx` of an `async def` body, and what it shares with that of a plain `def` body."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from stagewright.annotations import Actor, TypedKey
from stagewright.definitions import AbortSignal, StageReference
from stagewright.errors import AIServicesNotConfiguredError
from stagewright.json_values import Json
from stagewright.ports import ActivityRun
from stagewright.runtime.body_threads import BodyThreads
from stagewright.runtime.outputs import EarlierOutputs
from stagewright.runtime.reports import StageReports
from stagewright.runtime.steps.calls import Steps
from stagewright.runtime.steps.invocation import StepInvocation
from stagewright.runtime.storage import PrefixedStorage

__all__ = ["AsyncContext", "ContextFacts"]


class ContextFacts:
    """Where a body runs, what it was given, and how it reports.

    Args:
        activity: The invocation.
        reports: Where what the body says is kept.
        input: The stage's input, parsed.
        config: The stage's config, parsed.
        steps: What its steps share; something of its own unless given.
    """

    def __init__(
        self,
        activity: ActivityRun,
        reports: StageReports,
        *,
        input: Any,
        config: Any,
        steps: StepInvocation | None = None,
    ) -> None:
        self._activity = activity
        self._steps = steps or StepInvocation(activity, reports, BodyThreads())
        self._reports = reports
        self.input = input
        self.config = config
        self.run_id = activity.run_id
        self.workflow_id = activity.workflow.id
        self.stage_id = activity.stage.id
        self.stage_record_id = activity.stage_record_id
        self.stage_name = activity.stage.name
        self.stage_number = activity.stage_number
        self.attempt = activity.attempt
        self.definition_version = activity.definition_version or activity.workflow.definition_version
        self.abort: AbortSignal = activity.abort
        self._outputs = EarlierOutputs(activity.workflow, activity.outputs)

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The outputs of earlier stages, by stage id."""
        return self._outputs

    @cached_property
    def workflow_input(self) -> Any:
        """The run's input, as the workflow's input type."""
        what = f"the input of run {self.run_id!r}"
        return self._activity.workflow.input_schema.load(self._activity.workflow_input, what=what)

    @cached_property
    def resume_state(self) -> Any:
        """The state of the last `Suspend` of this stage, or None."""
        stored = self._activity.resume_state
        what = f"the suspended state of stage {self.stage_id!r}"
        return None if stored is None else self._activity.stage.state_schema.load(stored, what=what)

    @cached_property
    def ai(self) -> Any:
        """Model calls."""
        services = self._activity.resources.services
        if services.ai is None:
            raise AIServicesNotConfiguredError("ai")
        return services.ai(f"workflow.{self.run_id}.stage.{self.stage_id}", services.ai_logger)

    @property
    def ai_logger(self) -> Any:
        """The log of model calls."""
        logger = self._activity.resources.services.ai_logger
        if logger is None:
            raise AIServicesNotConfiguredError("ai_logger")
        return logger

    def require(self, stage: StageReference[Any] | str, /) -> Any:
        """The output of an earlier stage."""
        return self._outputs.require(stage)

    def optional(self, stage: StageReference[Any] | str, /) -> Any:
        """The output of an earlier stage, or None when it has none."""
        return self._outputs.optional(stage)

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """Add a line to the run's log."""
        self._reports.log(level, message, fields)

    def progress(self, percent: float, message: str = "", /, **details: object) -> None:
        """Emit `stage:progress`, with the stage's outcome."""
        self._reports.report_progress(percent, message, details)

    def annotate(
        self,
        key: TypedKey[Any] | str,
        value: object,
        /,
        *,
        actor: Actor | None = None,
        payload: Json = None,
        emit_event: bool = False,
    ) -> None:
        """Annotate the run with one value."""
        self._reports.annotate({key: value}, actor=actor, payload=payload, emit_event=emit_event)

    def annotate_many(
        self,
        attributes: Mapping[Any, Any],
        /,
        *,
        actor: Actor | None = None,
        payload: Json = None,
        emit_event: bool = False,
    ) -> None:
        """Annotate the run with several values that share actor and payload."""
        self._reports.annotate(attributes, actor=actor, payload=payload, emit_event=emit_event)


class AsyncContext(ContextFacts):
    """A `StageContext`."""

    @cached_property
    def storage(self) -> PrefixedStorage:
        """Blobs of this stage."""
        resources = self._activity.resources
        return PrefixedStorage(resources.blob_store, resources.storage_prefix)

    @cached_property
    def step(self) -> Steps:
        """Durable steps."""
        return Steps(self._steps)
