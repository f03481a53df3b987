"""The kernel: takes commands, carries each out in its transaction, keeps nothing that could change."""

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Self, TypeAlias, TypeVar, cast, overload

from stagewright.duration import Duration, parse_duration
from stagewright.errors import (
    CapabilityMissingError,
    InvalidCommandError,
    InvalidDurationError,
    InvalidSettingError,
    OwnTransactionsError,
    Problem,
)
from stagewright.kernel.annotations import Annotations
from stagewright.kernel.borrowed_ports import borrowed_ports
from stagewright.kernel.command import Command, checked_command
from stagewright.kernel.context import (
    DEFAULT_DELIVERY_TIMEOUT,
    DEFAULT_MAX_RETRIES,
    KernelPorts,
    KernelSettings,
    Registry,
)
from stagewright.kernel.dispatch_table import ROUTES, Route, TransactionMode
from stagewright.kernel.idempotency import KeyedCommand
from stagewright.kernel.known_definitions import KnownDefinitions
from stagewright.kernel.lifetime import Lifetime
from stagewright.kernel.runs import Runs
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import (
    ActivityExecutor,
    BlobStore,
    BorrowsSessions,
    CallersThread,
    Clock,
    DeliversAtOnce,
    DeliveryLimit,
    Enlistable,
    EventSink,
    GroupsJobs,
    IdSource,
    JobTransport,
    KernelServices,
    MayLoseJobs,
    Persistence,
    RandomSource,
    RetryBudget,
    RunReader,
    StepLedger,
    WorkNotifier,
)
from stagewright.records import ServedDefinition
from stagewright.runtime.local_executor import LocalExecutor
from stagewright.system import SystemRandom, TimeSortableIds

__all__ = ["Kernel", "Middleware"]

R = TypeVar("R")
CallNext: TypeAlias = Callable[[Command[Any]], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Command[Any], CallNext], Awaitable[Any]]
"""`async def middleware(command, call_next)`: answers the command, usually by `await call_next(command)`."""


class Kernel:
    """Carries out commands over the ports that it is given. It has no timers, threads, connections or globals.

    Args:
        persistence: Where all state is kept.
        blob_store: Where large values and artifacts are kept.
        job_transport: Who brings jobs to workers.
        event_sink: Who receives committed events.
        clock: The only source of time.
        registry: The workflows; every command asks it anew.
        step_ledger: Where durable steps are kept.
        services: What bodies get beside the ports.
        executor: Who runs bodies; by default they run here.
        ids: The only source of ids.
        random: The only source of randomness.
        middleware: Wrapped around every dispatch, the first outermost.
        spill_threshold_bytes: Outputs with more bytes of JSON go to the blob store; infinity spills nothing.
        idempotency_stale_after: A key in progress for this long is taken over; None or infinity never.
        run_reader: Behind `kernel.runs`; by default the persistence, which then has to offer it.

    Raises:
        CapabilityMissingError: If there is nothing to read runs from.
        InvalidDurationError: If `idempotency_stale_after`, or the sink's `delivery_timeout`, is no duration.
        InvalidSettingError: If `spill_threshold_bytes` is negative or no number, a middleware can't be called, the
            sink has no `emit`, or its `max_retries` is no number.
    """

    def __init__(
        self,
        *,
        persistence: Persistence,
        blob_store: BlobStore,
        job_transport: JobTransport,
        event_sink: EventSink,
        clock: Clock,
        registry: Registry,
        step_ledger: StepLedger | None = None,
        services: KernelServices | None = None,
        executor: ActivityExecutor | None = None,
        ids: IdSource | None = None,
        random: RandomSource | None = None,
        middleware: Sequence[Middleware] = (),
        spill_threshold_bytes: float = 65_536,
        idempotency_stale_after: Duration | None = "10m",
        run_reader: RunReader | None = None,
    ) -> None:
        _check_settings(event_sink, middleware, spill_threshold_bytes)
        settings = KernelSettings(
            spill_threshold_bytes=spill_threshold_bytes,
            idempotency_stale_after=_stale_after(idempotency_stale_after),
            max_retries=_max_retries(event_sink),
            delivery_timeout=_delivery_timeout(event_sink),
        )
        self.ports = KernelPorts(
            persistence=persistence,
            job_transport=job_transport,
            blob_store=blob_store,
            event_sink=event_sink,
            clock=clock,
            registry=registry,
            run_reader=run_reader or _reader_of(persistence),
            step_ledger=step_ledger,
            services=services or KernelServices(),
            executor=executor or LocalExecutor(),
            ids=ids or TimeSortableIds(),
            random=random or SystemRandom(),
            notifies=isinstance(persistence, WorkNotifier),
            transport_enlists=_enlists(job_transport, persistence),
            delivers_at_once=_delivers_at_once(job_transport, persistence),
            ledger_enlists=_enlists(step_ledger, persistence),
            blobs_enlist=_enlists(blob_store, persistence),
            may_lose_jobs=isinstance(job_transport, MayLoseJobs),
            fairness=job_transport.fairness if isinstance(job_transport, GroupsJobs) else None,
            borrows=isinstance(persistence, BorrowsSessions),
            settings=settings,
            known_definitions=KnownDefinitions(),
        )
        self._home = Lifetime()
        self.runs = Runs(self.ports, self._home)
        self.annotations = Annotations(self.ports, self._home)
        self._middleware = tuple(middleware)

    @overload
    async def dispatch(self, command: Command[R]) -> R: ...
    @overload
    async def dispatch(self, command: Mapping[str, object]) -> object: ...
    async def dispatch(self, command: Command[Any] | Mapping[str, object]) -> Any:
        """Carry out a command.

        Args:
            command: A command, or a dict of its fields with its `type`, such as `{"type": "run.cancel", "run_id": …}`.

        Returns:
            The command's result.

        Raises:
            InvalidCommandError: If the command's type is unknown or one of its fields is wrong; nothing is changed.
            ForkedProcessError: If the process was forked since the kernel was made.
            KernelClosedError: If the kernel is closed.
            StagewrightError: Whatever the command's own documentation names.
        """
        self._home.require("this kernel")
        route, checked = _routed(command)

        async def innermost(given: Command[Any]) -> Any:
            # A middleware may pass on another command than it was given.
            return await self._carry_out(*((route, checked) if given is checked else _routed(given)))

        call: CallNext = innermost
        for middleware in reversed(self._middleware):
            call = _wrapped(middleware, call)
        return await call(checked)

    def using(self, session: object, *, thread: CallersThread | None = None) -> Self:
        """The same kernel in a transaction of the caller's: SQLAlchemy's `AsyncSession` or `AsyncConnection`.

        It writes there and nowhere else. Nothing can be seen, claimed, sent or published before the caller commits,
        and nothing is left after a rollback, not even a used idempotency key. What a dispatch writes has been sent when
        it returns, and one that fails leaves nothing of itself. The session is never committed or rolled back, and
        nothing is tried again in it.

        Args:
            session: The session or connection, of the kernel's own database.
            thread: Where a session without an event loop is used; `SyncKernel.using` sees to it.

        Raises:
            CapabilityMissingError: If the persistence has no sessions that others could open.
            SessionRefusedError: If it is no session that the persistence knows. One that can't be used for another
                reason is refused by the first call.
        """
        self._home.require("this kernel")
        bound = copy.copy(self)
        bound.ports = borrowed_ports(self.ports, session, thread)
        bound.runs = Runs(bound.ports, self._home)
        bound.annotations = Annotations(bound.ports, self._home)
        return bound

    def served_definitions(self) -> tuple[ServedDefinition, ...] | None:
        """The workflows and versions that this kernel is able to run, or None if its registry can't list them."""
        return self.ports.served_definitions()

    def close(self) -> None:
        """Refuse whatever is asked for from now on; `open_kernel` does so at the end of its block.

        The ports stay as they are: they belong to whoever opened them.
        """
        self._home.end()

    async def _carry_out(self, route: Route, command: Command[Any]) -> Any:
        if route.mode is TransactionMode.OWN:
            if self.ports.is_borrowed:
                raise OwnTransactionsError(command.type)
            return await route.handle(command, self.ports)
        key = (
            cast(Any, command).idempotency_key if route.keyed else None
        )  # Any: keyed commands have this field
        if key is None:
            return await in_transaction(self.ports, lambda unit: route.handle(command, unit))
        keyed = KeyedCommand(self.ports, command, key, route.result)

        async def once(unit: UnitOfWork) -> Any:
            return await keyed.once(unit.tx, lambda: route.handle(command, unit))

        return await in_transaction(self.ports, once, causation_id=key)


def _routed(command: Command[Any] | Mapping[str, object]) -> tuple[Route, Command[Any]]:
    if isinstance(command, Command):
        return _route(command.type), checked_command(type(command), command)
    if not isinstance(command, Mapping):
        problem = Problem(
            path="$", message=f"a command is a Command or a dict with a type, not {type(command).__name__}"
        )
        raise InvalidCommandError(None, (problem,))
    route = _route(command.get("type"))
    return route, checked_command(
        route.command, {name: value for name, value in command.items() if name != "type"}
    )


def _route(command_type: object) -> Route:
    route = ROUTES.get(command_type) if isinstance(command_type, str) else None
    if route is None:
        problem = Problem(path="$.type", message=_unknown(command_type))
        raise InvalidCommandError(command_type if isinstance(command_type, str) else None, (problem,))
    return route


def _unknown(command_type: object) -> str:
    near = get_close_matches(command_type, ROUTES, n=1) if isinstance(command_type, str) else []
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"is not one of {', '.join(sorted(ROUTES))}{meant}"


def _wrapped(middleware: Middleware, call_next: CallNext) -> CallNext:
    async def call(command: Command[Any]) -> Any:
        return await middleware(command, call_next)

    return call


def _reader_of(persistence: Persistence) -> RunReader:
    if isinstance(persistence, RunReader):
        return persistence
    raise CapabilityMissingError(type(persistence).__name__, "RunReader", "give the kernel a run_reader")


def _enlists(adapter: object, persistence: Persistence) -> bool:
    return isinstance(adapter, Enlistable) and adapter.enlist(persistence) is not None


def _delivers_at_once(transport: JobTransport, persistence: Persistence) -> bool:
    if not isinstance(transport, DeliversAtOnce) or not _enlists(transport, persistence):
        return False
    # Whether a group has room is known to a claim alone.
    return not isinstance(transport, GroupsJobs) or transport.fairness is None


def _check_settings(event_sink: object, middleware: Sequence[object], spill_threshold_bytes: object) -> None:
    number = spill_threshold_bytes
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise InvalidSettingError("spill_threshold_bytes", number, "must be a number of bytes, zero or more")
    for one in middleware:
        if not callable(one):
            problem = "must be functions of a command and of what calls the next"
            raise InvalidSettingError("middleware", one, problem)
    if not callable(getattr(event_sink, "emit", None)):
        raise InvalidSettingError(
            "event_sink", event_sink, "must have a method `async def emit(self, event)`"
        )


def _max_retries(event_sink: EventSink) -> int:
    if not isinstance(event_sink, RetryBudget):
        return DEFAULT_MAX_RETRIES
    number: object = event_sink.max_retries
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidSettingError("event_sink.max_retries", number, "must be a whole number, zero or more")
    return number


def _delivery_timeout(event_sink: EventSink) -> timedelta:
    if not isinstance(event_sink, DeliveryLimit):
        return DEFAULT_DELIVERY_TIMEOUT
    name, given = "event_sink.delivery_timeout", event_sink.delivery_timeout
    limit = parse_duration(given, field=name)
    if not limit:
        raise InvalidDurationError(name, given, "must be longer than nothing")
    return limit


def _stale_after(value: Duration | None) -> timedelta | None:
    if value is None or value == float("inf"):
        return None
    duration = parse_duration(value, field="idempotency_stale_after")
    if not duration:
        raise InvalidDurationError("idempotency_stale_after", value, "must be longer than nothing")
    return duration
