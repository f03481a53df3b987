"""What is left of a run that is being purged, until nothing of it is left."""

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Tombstone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """Where things of a deleted run may still lie outside the persistence.

    Attributes:
        run_id: The run, of which no row is left.
        blob_prefixes: What the keys of its blobs start with.
        stage_ids: The stages that had jobs.
        stage_record_ids: The stage records that had steps.
        created_at: When the run was deleted, in UTC.
    """

    run_id: str
    blob_prefixes: tuple[str, ...]
    stage_ids: tuple[str, ...]
    stage_record_ids: tuple[str, ...]
    created_at: datetime
