"""A purged run leaves nothing behind."""

from collections.abc import Iterator

from stagewright_simulation.history import Violation
from stagewright_simulation.world import World

__all__ = ["promises_after_purge"]


def promises_after_purge(world: World) -> Iterator[Violation]:
    """Once everything is purged, nothing of any run is left."""
    main = world.main
    tables = (
        main.runs,
        main.stages,
        main.annotations,
        main.logs,
        main.outbox,
        main.event_sequences,
        main.idempotency_keys,
        main.tombstones,
        main.signals,
        world.job_database.jobs,
        world.step_database.steps,
        world.blob_database.blobs,
    )
    for table in tables:
        left = table.all()
        if left:
            yield Violation("purges-leave-nothing", f"{len(left)} {table.name} are left: {list(left)[:3]}")
