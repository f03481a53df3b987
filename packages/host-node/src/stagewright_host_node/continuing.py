"""Whether a slot goes on with the stage that follows, or with what waits."""

import time
from collections.abc import Callable
from typing import Final

from stagewright.hosting.job_execution import JobExecution
from stagewright_host_node.claim_loop import ClaimLoop
from stagewright_host_node.executions import Executions
from stagewright_host_node.thread_cap import ThreadCap

__all__ = ["Continuing"]

_AHEAD_OF_OTHERS: Final = 1.0


class Continuing:
    """Decides who takes the job that follows a stage, at the moment when its outcome is recorded.

    The slot goes on with it when another is free and nothing is known to wait for that; a host that is full doesn't
    look. Otherwise it does so for a second at most, counted from its last claim: short stages are worth more than their
    place in the queue, and long ones take theirs.

    Args:
        worker_id: The host's worker id.
        executions: The host's slots.
        claim_loop: Knows whether jobs wait.
        cap: Says whether anything may be begun.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        worker_id: str,
        executions: Executions,
        claim_loop: ClaimLoop,
        cap: ThreadCap,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker_id = worker_id
        self._executions = executions
        self._claim_loop = claim_loop
        self._cap = cap
        self._clock = clock

    def successor(self, execution: JobExecution) -> str | None:
        """The worker that takes what follows this execution; None leaves it to whoever claims."""
        if self._executions.are_reserved or self._cap.obstacle() is not None:
            return None
        is_brief = self._clock() - execution.claimed_at < _AHEAD_OF_OTHERS
        return self._worker_id if is_brief or self._claim_loop.knows_of_nothing else None
