"""Exceptions as records that every store can hold."""

import traceback
from typing import Final

from stagewright.json_values import text_problem
from stagewright.records import ErrorRecord

__all__ = ["describe_exception", "storable"]

_LONGEST_MESSAGE: Final = 8 * 1024
_LONGEST_TRACEBACK: Final = 16 * 1024
_CUT: Final = "\n… (cut) …\n"


def describe_exception(
    error: BaseException, *, code: str = "STAGE_FAILED", stage_id: str | None = None
) -> ErrorRecord:
    """Describe any exception, also one that can't be printed.

    Args:
        error: The exception.
        code: Which kind of failure it means.
        stage_id: The stage that failed.

    Returns:
        Its class name, its message with its notes, and its traceback with its causes and the members of a group, of
        at most 16 KiB. What no store can hold, such as a NUL character, is spelled out.
    """
    return ErrorRecord(
        code=code,
        message=storable(_message(error), _LONGEST_MESSAGE),
        type=storable(type(error).__name__, 255),
        traceback=storable(_traceback(error), _LONGEST_TRACEBACK),
        stage_id=stage_id,
    )


def storable(text: str, longest: int) -> str:
    """A text with at most so many bytes, its middle cut out, and with odd characters spelled out."""
    if text_problem(text) is not None:
        text = text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
    data = text.encode()
    if len(data) <= longest:
        return text
    half = (longest - len(_CUT.encode())) // 2
    return data[:half].decode(errors="ignore") + _CUT + data[-half:].decode(errors="ignore")


def _message(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception as unprintable:
        message = f"(its message can't be shown: str() raised {type(unprintable).__name__})"
    return "\n".join([message, *_notes(error)])


def _notes(error: BaseException) -> list[str]:
    try:
        return [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    except Exception:  # what can't be read is no reason to lose the error itself
        return []


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as unprintable:
        where = "".join(traceback.format_tb(error.__traceback__))
        return f"{where}{type(error).__name__}: (its traceback can't be shown: {type(unprintable).__name__})"
