"""What every handler of a kernel works with."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from stagewright.definitions import Workflow
from stagewright.errors import UnknownWorkflowError
from stagewright.kernel.known_definitions import KnownDefinitions
from stagewright.ports import (
    ActivityExecutor,
    BlobStore,
    Clock,
    DefinitionStore,
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
from stagewright.records import Fairness, RunRecord, ServedDefinition, Serves

__all__ = ["DEFAULT_DELIVERY_TIMEOUT", "DEFAULT_MAX_RETRIES", "KernelPorts", "KernelSettings", "Registry"]

Registry: TypeAlias = WorkflowRegistry[Workflow]

DEFAULT_MAX_RETRIES: Final = 3
DEFAULT_DELIVERY_TIMEOUT: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """A kernel's few numbers.

    Attributes:
        spill_threshold_bytes: Values with more bytes of JSON than this go to the blob store; infinity spills nothing.
        idempotency_stale_after: A key in progress for this long is taken over; None never.
        max_retries: Refusals of an event by the sink until it becomes a dead letter; 0 counts as 1.
        delivery_timeout: How long the sink may take over one event; after that it has refused it.
    """

    spill_threshold_bytes: float = 65_536
    idempotency_stale_after: timedelta | None = timedelta(minutes=10)
    max_retries: int = DEFAULT_MAX_RETRIES
    delivery_timeout: timedelta = DEFAULT_DELIVERY_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPorts:
    """The ports that a kernel was given, and what was found out about them once, when it was made.

    Attributes:
        notifies: Whether the persistence can wake waiting hosts.
        transport_enlists: Whether the job transport can take part in the persistence's transactions.
        delivers_at_once: Whether it can also make jobs in them that their worker has already.
        ledger_enlists: Whether the step ledger can.
        blobs_enlist: Whether the blob store can.
        may_lose_jobs: Whether the job transport can tell that jobs may be missing.
        fairness: How the job transport groups jobs; None where it doesn't.
        borrows: Whether the persistence can work on a session of the caller's.
        is_borrowed: Whether these ports work on one: the caller commits, or doesn't.
        known_definitions: What was learnt of stored definitions since.
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
    delivers_at_once: bool
    ledger_enlists: bool
    blobs_enlist: bool
    may_lose_jobs: bool
    fairness: Fairness | None
    borrows: bool
    is_borrowed: bool = False
    settings: KernelSettings
    known_definitions: KnownDefinitions

    def workflow(self, workflow_id: str) -> Workflow:
        """The workflow of that id.

        Raises:
            UnknownWorkflowError: If the registry has none.
        """
        workflow = self.registry.get(workflow_id)
        if workflow is None:
            raise UnknownWorkflowError(workflow_id, self._known_workflows())
        return workflow

    async def served_workflow(self, run: RunRecord, definitions: DefinitionStore) -> Workflow | None:
        """The workflow of a run in the version that the run is pinned to; None if this process doesn't have it.

        Args:
            run: The run.
            definitions: Asked, once, whether a declared version has the structure that it has here.
        """
        workflow = self.registry.get(run.workflow_id)
        if workflow is None or run.definition_version not in (None, workflow.definition_version):
            return None
        return None if await self.has_another_structure(run, definitions) else workflow

    async def has_another_structure(self, run: RunRecord, definitions: DefinitionStore) -> bool:
        """Whether this process has the version that the run is pinned to, but not as it is stored.

        Args:
            run: The run.
            definitions: As above.
        """
        workflow = self.registry.get(run.workflow_id)
        if workflow is None or run.definition_version != workflow.definition_version:
            return False
        return not await self.known_definitions.fits(definitions, workflow)

    def served_definitions(self) -> tuple[ServedDefinition, ...] | None:
        """What this process is able to run as of now, or None if the registry can't list it."""
        registry: Any = self.registry  # Any: a registry of the caller's own may lack list()
        if not isinstance(registry, EnumerableRegistry):
            return None
        return tuple(
            ServedDefinition(workflow.id, workflow.definition_version)
            for workflow in registry.list()
            if not self.known_definitions.differs(workflow)
        )

    def serves_of(self, serves: Serves | str) -> Serves:
        """What a command's `serves` means: None is what the registry has, `"all"` is everything."""
        if serves is None:
            return self.served_definitions()
        return None if isinstance(serves, str) else [pair for pair in serves if not self._differs(pair)]

    def _differs(self, pair: ServedDefinition) -> bool:
        workflow = self.registry.get(pair.workflow_id)
        return (
            workflow is not None
            and workflow.definition_version == pair.version
            and self.known_definitions.differs(workflow)
        )

    def _known_workflows(self) -> tuple[str, ...] | None:
        registry: Any = self.registry  # Any: as above
        if not isinstance(registry, EnumerableRegistry):
            return None
        return tuple(workflow.id for workflow in registry.list())
