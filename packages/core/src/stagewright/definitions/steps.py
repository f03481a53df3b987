"""Durable steps as a body sees them. Only the shape stands here; the run time fills it."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, Required, TypeAlias, overload

from typing_extensions import TypedDict, TypeVar, Unpack

from stagewright.definitions.abort import AbortSignal
from stagewright.duration import Duration

__all__ = ["Backoff", "BlockingStageSteps", "OnReclaim", "RunOptions", "StageSteps", "StepRun", "WaitOptions"]

R = TypeVar("R")
V = TypeVar("V")

OnReclaim: TypeAlias = Literal["rerun", "fail"]
"""What becomes of a step that a lost worker had begun: execute it again, or refuse to."""


class Backoff(TypedDict, total=False):
    """How the pauses between the executions of a step grow.

    Attributes:
        factor: Each pause is this many times the one before; 1 unless given.
        max_delay: No pause is longer than this.
        jitter: Whether a pause is any random part of its length; no unless given.
    """

    factor: float
    max_delay: Duration
    jitter: bool


class RunOptions(TypedDict, total=False):
    """The options of `ctx.step.run`; `StageSteps.run` says what they mean."""

    retries: int
    retry_delay: Duration
    backoff: float | Backoff | None
    lease: Duration | None
    heartbeat: Duration | None
    on_reclaim: OnReclaim


class WaitOptions(TypedDict, total=False):
    """The options of `ctx.step.wait_for`; `StageSteps.wait_for` says what they mean."""

    every: Required[Duration]
    timeout: Required[Duration]
    poll_backoff: Duration | None


class StepRun(Protocol):
    """One execution of a step's function, which may take it as its one argument."""

    @property
    def step_id(self) -> str:
        """The step's id."""
        ...

    @property
    def external_key(self) -> str:
        """The same for every execution of this step: give it to other systems as their idempotency key."""
        ...

    @property
    def attempt(self) -> int:
        """Which execution this is, from 1; it only ever rises."""
        ...

    @property
    def is_reclaim(self) -> bool:
        """Whether an earlier execution was lost in the middle or redriven, so that it may have taken effect."""
        ...

    @property
    def abort(self) -> AbortSignal:
        """Tells the function to stop."""
        ...

    def heartbeat(self) -> Awaitable[None]:
        """Extend an explicit lease from now on; `StepLeaseLostError` if another execution has the step.

        Await it in an `async def` function; in a plain one the call itself does it and blocks.
        """
        ...


Call: TypeAlias = Callable[[], R]
Told: TypeAlias = Callable[[StepRun], R]
AsyncCall: TypeAlias = Callable[[], Awaitable[R]]
AsyncTold: TypeAlias = Callable[[StepRun], Awaitable[R]]
# Checkers differ in what they make of `lambda i=i: …`: one needs the forms apart, another their union.


class StageSteps(Protocol):
    """`ctx.step`: what a body does once, however often it is invoked.

    Every id is used once in an invocation; what the ledger has under an id is answered without doing it again.
    """

    @overload
    async def run(
        self, id: str, fn: AsyncCall[R], *, returns: None = None, **options: Unpack[RunOptions]
    ) -> R: ...
    @overload
    async def run(
        self, id: str, fn: Call[R], *, returns: None = None, **options: Unpack[RunOptions]
    ) -> R: ...
    @overload
    async def run(
        self, id: str, fn: AsyncTold[R], *, returns: None = None, **options: Unpack[RunOptions]
    ) -> R: ...
    @overload
    async def run(
        self, id: str, fn: Told[R], *, returns: None = None, **options: Unpack[RunOptions]
    ) -> R: ...
    @overload
    async def run(
        self, id: str, fn: AsyncCall[R] | AsyncTold[R], *, returns: None = None, **options: Unpack[RunOptions]
    ) -> R: ...
    @overload
    async def run(
        self, id: str, fn: Call[R] | Told[R], *, returns: None = None, **options: Unpack[RunOptions]
    ) -> R: ...
    @overload
    async def run(
        self, id: str, fn: Callable[..., object], *, returns: type[V], **options: Unpack[RunOptions]
    ) -> V: ...
    @overload
    async def run(
        self, id: str, fn: Callable[..., object], *, returns: object, **options: Unpack[RunOptions]
    ) -> Any: ...
    async def run(
        self,
        id: str,
        fn: Callable[..., object],
        *,
        returns: object = None,
        **options: Unpack[RunOptions],
    ) -> Any:
        """Call a function and keep its result; a later invocation of the body gets the result without the call.

        Args:
            id: The step's id, unique in this stage.
            fn: `async def`, or a plain function, which runs in a thread; of no argument or of one `StepRun`.
            returns: The type of its result; by default its return annotation, else plain JSON.
            retries: How often it is called again after it raised, in later invocations.
            retry_delay: The pause before the first of those, in which the stage is suspended.
            backoff: How later pauses grow: a factor, or a dict of `factor`, `max_delay` and `jitter`.
            lease: For how long the execution is its worker's alone; by default for as long as its job is.
            heartbeat: How often an explicit lease is renewed meanwhile; by default three times within its length.
            on_reclaim: With `"fail"` a step that a lost worker had begun is refused instead of executed again.

        Raises:
            DefinitionError: If an argument makes no sense; nothing was done.
            DuplicateStepKeyError: If this invocation has asked for the id before.
            StepFailedError: If it has failed for good before.
            StepNotReplaySafeError: If a lost worker had begun it and `on_reclaim` is `"fail"`.
            StepResultNotSerializableError: If its result has no exact JSON form, or doesn't fit its type.
            StepLeaseLostError: If another execution of this stage has it by now.
            StepLedgerWriteError: If the ledger could not keep it.
            StepLedgerNotConfiguredError: If the kernel has no ledger.
            Exception: Whatever the function raises when it is not to be called again.
        """
        ...

    @overload
    async def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], Awaitable[R]],
        ready: Callable[[R], bool],
        returns: None = None,
        **options: Unpack[WaitOptions],
    ) -> R: ...
    @overload
    async def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], R],
        ready: Callable[[R], bool],
        returns: None = None,
        **options: Unpack[WaitOptions],
    ) -> R: ...
    @overload
    async def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], object],
        ready: Callable[[Any], bool],
        returns: type[V],
        **options: Unpack[WaitOptions],
    ) -> V: ...
    @overload
    async def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], object],
        ready: Callable[[Any], bool],
        returns: object,
        **options: Unpack[WaitOptions],
    ) -> Any: ...
    async def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], object],
        ready: Callable[[Any], bool],
        returns: object = None,
        **options: Unpack[WaitOptions],
    ) -> Any:
        """Ask until the answer will do, and return that answer; the stage is suspended in between.

        What `poll` raises is no failure: it is asked again, up to the deadline. A `NonRetryableError` ends the wait.

        Args:
            id: The step's id, unique in this stage.
            poll: What is asked: `async def`, or a plain function, which runs in a thread; of no argument.
            ready: Whether an answer will do; a plain function of what `poll` returned.
            returns: The type of the answer; by default the return annotation of `poll`, else plain JSON.
            every: The pause after an answer that won't do; the first that was asked for stays.
            timeout: How long to wait in all; the deadline is stored when it is first asked for, and never slides.
            poll_backoff: The pause after `poll` raised; by default as `every`.

        Raises:
            StepTimeoutError: If its time is over; the stage isn't tried again for it.
            StepResultNotSerializableError: If the answer has no exact JSON form, or doesn't fit its type.
            DefinitionError, DuplicateStepKeyError, StepLedgerWriteError, StepLedgerNotConfiguredError: As `run`.
            Exception: Whatever `ready` raises; the wait goes on in the next invocation.
        """
        ...

    @overload
    async def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: None = None, keepalive: Duration = ...
    ) -> Any: ...
    @overload
    async def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: type[V], keepalive: Duration = ...
    ) -> V: ...
    @overload
    async def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: object, keepalive: Duration = ...
    ) -> Any: ...
    async def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: object = None, keepalive: Duration = "5m"
    ) -> Any:
        """Return what the command `SignalStep` brings to this step; the stage is suspended until then.

        A signal that came before is kept, and answers at once.

        Args:
            id: The step's id, unique in this stage, which the signal names.
            timeout: How long to wait; the deadline is stored when it is first asked for, and never slides.
            returns: The type of what is brought; by default plain JSON.
            keepalive: How often the stage looks by itself, should nothing have woken it.

        Raises:
            StepTimeoutError: If none came in time; the stage isn't tried again for it.
            StepResultNotSerializableError: If what was brought doesn't fit its type.
            DefinitionError, DuplicateStepKeyError, StepLedgerWriteError, StepLedgerNotConfiguredError: As `run`.
        """
        ...

    async def sleep(self, id: str, duration: Duration) -> None:
        """Return once this long has passed since it was first asked for; the stage is suspended meanwhile.

        Args:
            id: The step's id, unique in this stage.
            duration: How long; what was asked for first stays, whatever later invocations say.

        Raises:
            InvalidDurationError: If the duration makes no sense; nothing was done.
            DefinitionError, DuplicateStepKeyError, StepLedgerWriteError, StepLedgerNotConfiguredError: As `run`.
        """
        ...


class BlockingStageSteps(Protocol):
    """`StageSteps` for a plain `def` body: each call blocks its thread.

    A plain step function runs in the thread that calls; an `async def` one runs on the event loop.
    """

    @overload
    def run(self, id: str, fn: AsyncCall[R], *, returns: None = None, **options: Unpack[RunOptions]) -> R: ...
    @overload
    def run(self, id: str, fn: Call[R], *, returns: None = None, **options: Unpack[RunOptions]) -> R: ...
    @overload
    def run(self, id: str, fn: AsyncTold[R], *, returns: None = None, **options: Unpack[RunOptions]) -> R: ...
    @overload
    def run(self, id: str, fn: Told[R], *, returns: None = None, **options: Unpack[RunOptions]) -> R: ...
    @overload
    def run(
        self, id: str, fn: AsyncCall[R] | AsyncTold[R], *, returns: None = None, **options: Unpack[RunOptions]
    ) -> R: ...
    @overload
    def run(
        self, id: str, fn: Call[R] | Told[R], *, returns: None = None, **options: Unpack[RunOptions]
    ) -> R: ...
    @overload
    def run(
        self, id: str, fn: Callable[..., object], *, returns: type[V], **options: Unpack[RunOptions]
    ) -> V: ...
    @overload
    def run(
        self, id: str, fn: Callable[..., object], *, returns: object, **options: Unpack[RunOptions]
    ) -> Any: ...
    def run(
        self,
        id: str,
        fn: Callable[..., object],
        *,
        returns: object = None,
        **options: Unpack[RunOptions],
    ) -> Any:
        """Call a function and keep its result, as `StageSteps.run` does."""
        ...

    @overload
    def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], Awaitable[R]],
        ready: Callable[[R], bool],
        returns: None = None,
        **options: Unpack[WaitOptions],
    ) -> R: ...
    @overload
    def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], R],
        ready: Callable[[R], bool],
        returns: None = None,
        **options: Unpack[WaitOptions],
    ) -> R: ...
    @overload
    def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], object],
        ready: Callable[[Any], bool],
        returns: type[V],
        **options: Unpack[WaitOptions],
    ) -> V: ...
    @overload
    def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], object],
        ready: Callable[[Any], bool],
        returns: object,
        **options: Unpack[WaitOptions],
    ) -> Any: ...
    def wait_for(
        self,
        id: str,
        *,
        poll: Callable[[], object],
        ready: Callable[[Any], bool],
        returns: object = None,
        **options: Unpack[WaitOptions],
    ) -> Any:
        """Ask until the answer will do, as `StageSteps.wait_for` does."""
        ...

    @overload
    def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: None = None, keepalive: Duration = ...
    ) -> Any: ...
    @overload
    def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: type[V], keepalive: Duration = ...
    ) -> V: ...
    @overload
    def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: object, keepalive: Duration = ...
    ) -> Any: ...
    def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: object = None, keepalive: Duration = "5m"
    ) -> Any:
        """Return what the command `SignalStep` brings, as `StageSteps.wait_for_signal` does."""
        ...

    def sleep(self, id: str, duration: Duration) -> None:
        """Return once this long has passed since it was first asked for, as `StageSteps.sleep` does."""
        ...
