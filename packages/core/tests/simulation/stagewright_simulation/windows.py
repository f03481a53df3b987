"""Times during which something outside of the processes is out of order."""

from collections.abc import Callable

__all__ = ["Windows"]


class Windows:
    """What is out of order, until when."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until: dict[tuple[str, str], tuple[float, float]] = {}

    def open(self, kind: str, role: str, *, length: float, amount: float) -> None:
        """Something is out of order from now on for a while."""
        self._until[kind, role] = (self._now() + length, amount)

    def is_open(self, kind: str, role: str = "") -> bool:
        """Whether it is out of order now."""
        window = self._until.get((kind, role))
        return window is not None and self._now() < window[0]

    def amount(self, kind: str) -> float:
        """How much, while it is out of order; else nothing."""
        return self._until[kind, ""][1] if self.is_open(kind) else 0.0

    def close_all(self) -> None:
        """Everything is in order from now on."""
        self._until.clear()
