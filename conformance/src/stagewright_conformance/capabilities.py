"""What an adapter may lack, in one typed object."""

from dataclasses import dataclass, fields
from typing import Final

__all__ = ["CAPABILITY_NAMES", "Capabilities"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an adapter can do beyond the least that every adapter does.

    An adapter's test class overrides the fixture `capabilities` and sets to False what it lacks. Whatever isn't
    listed there is required, and what isn't listed here can't be waived. A test that needs a lacking capability is
    expected to fail; where it passes, the declaration is wrong and the test fails.

    Attributes:
        concurrent_writers: Transactions that write different rows can be open at the same time, so that a claimer
            skips a row that another transaction holds instead of waiting for the whole database.
        callers_sessions: The persistence is a `BorrowsSessions`.
        wake_ups: The adapter is a `WorkNotifier`.
        heartbeats: The transport is an `OpensHeartbeats`.
        priorities: The transport delivers higher priorities first.
        due_times: The transport keeps a job back until it is due.
        fairness: The transport is a `GroupsJobs`.
        delivers_at_once: The transport is a `DeliversAtOnce`.
        serves_filter: The transport delivers only what the claimer serves.
        conditional_put: The blob store lets exactly one of several `if_absent` writers win.
        presigned_urls: The blob store is a `Presigner`.
        several_consumers: The event sink gives each event to several consumers.
        dated_blobs: The blob store is a `DatesBlobs`.
        long_keys: The blob store takes keys of 900 characters.
    """

    concurrent_writers: bool = True
    callers_sessions: bool = True
    wake_ups: bool = True
    heartbeats: bool = True
    priorities: bool = True
    due_times: bool = True
    fairness: bool = True
    delivers_at_once: bool = True
    serves_filter: bool = True
    conditional_put: bool = True
    presigned_urls: bool = True
    several_consumers: bool = True
    dated_blobs: bool = True
    long_keys: bool = True

    def has(self, name: str) -> bool:
        """Whether the adapter has the capability of that name."""
        return bool(getattr(self, name))


CAPABILITY_NAMES: Final = frozenset(field.name for field in fields(Capabilities))
"""What `pytest.mark.needs` may name."""
