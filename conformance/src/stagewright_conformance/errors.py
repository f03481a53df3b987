"""Why the suite doesn't run at a URL."""

from dataclasses import dataclass

from stagewright.errors import StagewrightError

__all__ = ["CannotBeEmptiedError", "StoreInUseError", "StoreRefusedError"]


@dataclass(eq=False)
class StoreRefusedError(StagewrightError):
    """The suite doesn't run there; nothing was changed.

    Attributes:
        url: The URL, without its secrets.
    """

    url: str


@dataclass(eq=False)
class StoreInUseError(StoreRefusedError):
    """There is something that the suite would delete.

    Attributes:
        held: What there is.
    """

    held: str

    def __str__(self) -> str:
        return (
            f"{self.url} holds {self.held}, and the suite deletes all that is there; "
            "give the URL of an empty store, or --erase if it may be deleted"
        )


@dataclass(eq=False)
class CannotBeEmptiedError(StoreRefusedError):
    """Nobody can empty it between two tests."""

    def __str__(self) -> str:
        return (
            f"{self.url} can't be emptied between two tests; write {{folder}} in the URL where each test is to have "
            "a folder of its own, or let the adapter's plugin name a conformance target with `empty`"
        )
