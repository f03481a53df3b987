"""What can go wrong with runs and their stages."""

from dataclasses import dataclass

from stagewright.errors.root import StagewrightError, listed

__all__ = [
    "AIServicesNotConfiguredError",
    "NonRetryableError",
    "RunNotFoundError",
    "RunNotRunningError",
    "RunStalledError",
    "RunStateError",
    "StageAbortedError",
    "StageOutputMissingError",
    "StageTimeoutError",
]


@dataclass(eq=False)
class RunNotFoundError(StagewrightError):
    """No run has that id."""

    run_id: str

    def __str__(self) -> str:
        return f"no run has the id {self.run_id!r}"


@dataclass(eq=False)
class RunStateError(StagewrightError):
    """The run's state doesn't allow what was asked."""

    run_id: str
    status: str
    needed: str

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status}, and this needs {self.needed}"


@dataclass(eq=False)
class RunNotRunningError(StagewrightError):
    """Rolls an outcome's transaction back because its run has ended meanwhile; never leaves the kernel."""

    run_id: str
    status: str | None

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status}, not RUNNING"


@dataclass(eq=False)
class RunStalledError(StagewrightError):
    """A run that was driven in this process can't be moved on by this process."""

    run_id: str
    status: str
    reason: str

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status} and can't go on here: {self.reason}"


@dataclass(eq=False)
class StageOutputMissingError(StagewrightError):
    """A body asked for the output of a stage that has none."""

    stage_id: str
    available: tuple[str, ...]

    def __str__(self) -> str:
        return f"there is no output of stage {self.stage_id!r}; outputs so far: {listed(self.available)}"


@dataclass(eq=False)
class StageTimeoutError(StagewrightError):
    """One invocation of a body took longer than the stage's timeout."""

    stage_id: str
    seconds: float

    def __str__(self) -> str:
        return f"stage {self.stage_id!r} did not end within its timeout of {self.seconds:g} s"


@dataclass(eq=False)
class StageAbortedError(StagewrightError):
    """The body was told to stop; `reason` is `cancelled`, `lease-lost` or `shutdown`."""

    reason: str

    def __str__(self) -> str:
        return f"the stage was told to stop: {self.reason}"


class NonRetryableError(StagewrightError):
    """Raise this in a body when another attempt can't help: the stage fails at once."""


@dataclass(eq=False)
class AIServicesNotConfiguredError(StagewrightError):
    """A body touched `ctx.ai` or `ctx.ai_logger` on a kernel without that service."""

    attribute: str

    def __str__(self) -> str:
        also = (
            "; open_kernel(services=KernelServices()) brings the database's"
            if self.attribute == "ai_logger"
            else ""
        )
        needed = f"Kernel(services=KernelServices({self.attribute}=...))"
        return f"ctx.{self.attribute} needs {needed}, and none was given{also}"
