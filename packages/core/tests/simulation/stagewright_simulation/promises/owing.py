"""What is owed is given within moments, once nothing goes wrong."""

from typing import Final

from stagewright.status import Status
from stagewright_simulation.world import World

__all__ = ["OwedJobs"]

_PATIENCE: Final = 100.0


class OwedJobs:
    """Stages that want a job and have none, and since when that was seen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[tuple[str, int], float] = {}

    def look(self) -> None:
        """Look once; the same row that is owed a job for long is a broken promise."""
        world, now = self._world, self._world.loop.time()
        runs = world.main.runs.all()
        for stage in world.main.stages.all().values():
            waits = stage.status is Status.SUSPENDED and stage.next_poll_at is None
            is_wanted = runs[stage.run_id].status is Status.RUNNING
            if (
                stage.job_enqueued_at is not None
                or not (waits or stage.status is Status.PENDING)
                or not is_wanted
            ):
                continue
            since = self._since.setdefault((stage.id, stage.version), now)
            if now - since > _PATIENCE and world.clocks_are_right:
                what = f"stage {stage.stage_id} of {stage.run_id} is owed a job since {since:.0f}"
                world.history.violate("owed-for-moments", what)
