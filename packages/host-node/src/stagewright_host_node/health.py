"""Whether a host lives, and whether it is ready for work."""

from dataclasses import dataclass

__all__ = ["HostHealth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHealth:
    """What a probe wants to know.

    Attributes:
        live: Whether the claim loop goes round. A process that isn't live should be restarted.
        ready: Whether the host takes work: it runs and isn't told to stop, the store answers, nothing hinders it.
        problems: What is in the way, in words.
        degraded: What is wrong though work goes on, in words: notifications that don't come through, events that the
            sink refuses, leases that can't be renewed at the moment, runs of versions that this host doesn't serve.
    """

    live: bool
    ready: bool
    problems: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
