"""What is measured: something that takes three-stage runs from their creation to COMPLETED."""

from collections.abc import Sequence
from typing import Any, Protocol

from benchmarks.run_tables import RunTables

__all__ = ["FAN", "STAGES", "WORKFLOW", "Contender"]

WORKFLOW = "three-stages"
STAGES = ("s1", "s2", "s3")
FAN = 20
"""How many stages, or steps, are side by side."""


class Contender(Protocol):
    """An engine, seen as the few calls that a worker makes.

    Attributes:
        tables: The tables that it writes to.
    """

    tables: RunTables

    async def create(self) -> None:
        """Create one run."""
        ...

    async def claim_runs(self, limit: int) -> int:
        """Set up to `limit` runs going, and say how many there were."""
        ...

    async def claim_jobs(self, limit: int) -> Sequence[Any]:
        """Take up to `limit` jobs and start their stages."""
        ...

    async def execute(self, job: Any) -> bool:
        """Execute a job and record its outcome; True if it was the run's last one."""
        ...
