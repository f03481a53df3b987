"""One page of a listing, and which runs to list."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from stagewright.status import Status

__all__ = ["Page", "RunQuery"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """Some items of a listing.

    Attributes:
        items: The items, in the listing's order.
        next_cursor: Give this as `cursor` for the next page; None when this is the last.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to list; filters are combined with AND, None doesn't filter.

    Attributes:
        workflow_id: Runs of this workflow.
        statuses: Runs in one of these.
        definition_version: Runs pinned to this version.
        created_from: Created at or after.
        created_to: Created before.
    """

    workflow_id: str | None = None
    statuses: Collection[Status] | None = None
    definition_version: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
