"""What every handler of a kernel works with."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from stagewright.definitions import Workflow
from stagewright.errors import UnknownWorkflowError
from stagewright.ports import (
    ActivityExecutor,
    BlobStore,
    Clock,
    EnumerableRegistry,
    EventSink,
    IdSource,
    JobTransport,
    KernelServices,
    Persistence,
    RandomSource,
    RunReader,
    StepLedger,
    WorkflowRegistry,
)
from stagewright.records import ServedDefinition, Serves

__all__ = ["DEFAULT_MAX_RETRIES", "KernelPorts", "KernelSettings", "Registry"]

Registry: TypeAlias = WorkflowRegistry[Workflow]

DEFAULT_MAX_RETRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """A kernel's few numbers.

    Attributes:
        spill_threshold_bytes: Values with more bytes of JSON than this go to the blob store; infinity spills nothing.
        idempotency_stale_after: A key in progress for this long is taken over; None never.
        max_retries: Refusals of an event by the sink until it becomes a dead letter.
    """

    spill_threshold_bytes: float = 65_536
    idempotency_stale_after: timedelta | None = timedelta(minutes=10)
    max_retries: int = DEFAULT_MAX_RETRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPorts:
    """The ports that a kernel was given, and what was found out about them once, when it was made.

    Attributes:
        notifies: Whether the persistence can wake waiting hosts.
        transport_enlists: Whether the job transport can take part in the persistence's transactions.
    """

    persistence: Persistence
    job_transport: JobTransport
    blob_store: BlobStore
    event_sink: EventSink
    clock: Clock
    registry: Registry
    run_reader: RunReader
    step_ledger: StepLedger | None
    services: KernelServices
    executor: ActivityExecutor
    ids: IdSource
    random: RandomSource
    notifies: bool
    transport_enlists: bool
    settings: KernelSettings

    def workflow(self, workflow_id: str) -> Workflow:
        """The workflow of that id.

        Raises:
            UnknownWorkflowError: If the registry has none.
        """
        workflow = self.registry.get(workflow_id)
        if workflow is None:
            raise UnknownWorkflowError(workflow_id, self._known_workflows())
        return workflow

    def served_definitions(self) -> tuple[ServedDefinition, ...] | None:
        """What this process is able to run as of now, or None if the registry can't list it."""
        registry: Any = self.registry  # Any: a registry of the caller's own may lack list()
        if not isinstance(registry, EnumerableRegistry):
            return None
        return tuple(
            ServedDefinition(workflow.id, workflow.definition_version) for workflow in registry.list()
        )

    def serves_of(self, serves: Serves | str) -> Serves:
        """What a command's `serves` means: None is what the registry has, `"all"` is everything."""
        if serves is None:
            return self.served_definitions()
        return None if isinstance(serves, str) else serves

    def _known_workflows(self) -> tuple[str, ...] | None:
        served = self.served_definitions()
        return None if served is None else tuple(pair.workflow_id for pair in served)
