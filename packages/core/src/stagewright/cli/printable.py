"""Text from elsewhere as it may be shown: control characters spelled out, so that none reaches a terminal."""

import re
from typing import Final

__all__ = ["one_line", "printable"]

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_LINE_BREAK: Final = re.compile(r"[ \t]*[\r\n]\s*")


def printable(text: str) -> str:
    r"""The text with control characters as escapes, such as `\x1b`; tabs and line ends stay."""
    return _CONTROL.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same in one line: each line break, with the blanks around it, becomes one blank."""
    return printable(_LINE_BREAK.sub(" ", text.strip("\r\n")))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
