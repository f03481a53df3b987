"""Where annotations are kept."""

from collections.abc import Sequence
from typing import Protocol

from stagewright.records import AnnotationQuery, AnnotationRecord

__all__ = ["AnnotationStore"]


class AnnotationStore(Protocol):
    """Annotations of runs; rows are only added."""

    async def append_annotations(self, annotations: Sequence[AnnotationRecord]) -> list[str]:
        """Insert annotations, skipping each whose run, key and idempotency key exist already.

        A None idempotency key never collides. The first row stays as it is.

        Returns:
            The ids of the rows that were written, in the order given.

        Raises:
            RecordNotFoundError: If an annotation's run doesn't exist.
        """
        ...

    async def list_annotations(self, run_id: str, query: AnnotationQuery) -> list[AnnotationRecord]:
        """The annotations of a run that fit the query, by `created_at`, then in the order they were appended."""
        ...
