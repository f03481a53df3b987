"""Telling a body to stop, as the body sees it."""

from typing import Literal, Protocol, TypeAlias

__all__ = ["AbortReason", "AbortSignal"]

AbortReason: TypeAlias = Literal["cancelled", "lease-lost", "shutdown"]


class AbortSignal(Protocol):
    """Tells a body to stop; its outcome is discarded from then on."""

    @property
    def is_set(self) -> bool:
        """Whether the body should stop."""
        ...

    @property
    def reason(self) -> AbortReason | None:
        """Why, or None while the signal isn't set."""
        ...

    async def wait(self) -> None:
        """Return once the signal is set."""
        ...

    def raise_if_set(self) -> None:
        """Raise `StageAbortedError` if the signal is set."""
        ...
