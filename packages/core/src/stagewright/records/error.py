"""A failure as it is stored."""

from dataclasses import dataclass

__all__ = ["ErrorRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """Why a stage or a run failed.

    Attributes:
        code: A stable upper-case word that says which kind of failure this is, such as `STAGE_FAILED`.
        message: The failure in words, storable on every database.
        type: The class name of the exception, or None where there was none.
        traceback: Its traceback, cause and notes, at most 16 KiB, or None.
        stage_id: The stage that failed, or None where no stage was at fault.
    """

    code: str
    message: str
    type: str | None = None
    traceback: str | None = None
    stage_id: str | None = None

    def __str__(self) -> str:
        return self.message if self.type is None else f"{self.type}: {self.message}"
