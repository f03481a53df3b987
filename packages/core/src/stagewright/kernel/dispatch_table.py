"""Which command is handled where, in which kind of transaction, and whether a key makes it happen once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from stagewright.kernel.command import Command
from stagewright.kernel.commands import (
    job_claim,
    job_execute,
    outbox_flush,
    run_cancel,
    run_claim_pending,
    run_create,
    run_transition,
)

__all__ = ["ROUTES", "Route", "TransactionMode"]


class TransactionMode(Enum):
    """Where a command's transactions begin and end."""

    ONE = "the dispatcher opens one, and the handler is given it"
    OWN = "the handler opens its own short ones, so that bodies and sinks run with none open"


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table; the first parameter of `handle` is the command, the second what its mode gives it."""

    command: type[Command[Any]]
    result: type[Any]
    handle: Callable[[Any, Any], Awaitable[Any]]
    mode: TransactionMode
    keyed: bool = False


_ONE, _OWN = TransactionMode.ONE, TransactionMode.OWN

ROUTES: Final[dict[str, Route]] = {
    route.command.type: route
    for route in (
        Route(run_create.CreateRun, run_create.CreateRunResult, run_create.handle, _ONE, keyed=True),
        Route(
            run_claim_pending.ClaimPendingRuns,
            run_claim_pending.ClaimPendingRunsResult,
            run_claim_pending.handle,
            _ONE,
        ),
        Route(run_transition.TransitionRun, run_transition.TransitionRunResult, run_transition.handle, _ONE),
        Route(run_cancel.CancelRun, run_cancel.CancelRunResult, run_cancel.handle, _ONE),
        Route(job_claim.ClaimJobs, job_claim.ClaimJobsResult, job_claim.handle, _OWN),
        Route(job_execute.ExecuteJob, job_execute.ExecuteJobResult, job_execute.handle, _OWN, keyed=True),
        Route(outbox_flush.FlushOutbox, outbox_flush.FlushOutboxResult, outbox_flush.handle, _OWN),
    )
}
"""Every command that the kernel knows, by its type."""
