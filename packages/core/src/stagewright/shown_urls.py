"""URLs as errors and logs show them."""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

__all__ = ["named_parameter", "redacted"]

_PASSWORD: Final = re.compile(r"(?<=://)([^:@/?#]*):.*@")
_PARAMETER: Final = re.compile(r"(?<=[?&])([^=&]*)(=[^&]*)?")


def redacted(url: str, *, whole: Collection[str] = ()) -> str:
    """A URL as it may be shown: without its password, and of its parameters the names alone.

    A misspelt name has a secret behind it as easily as a right one.

    Args:
        url: The URL.
        whole: The names of parameters that are shown with their values.
    """

    def shown(parameter: re.Match[str]) -> str:
        name, value = parameter[1], parameter[2]
        if "@" in unquote(name):
            return "***"
        return parameter[0] if name in whole else f"{name}{'=***' if value else ''}"

    return _PARAMETER.sub(shown, _PASSWORD.sub(r"\1:***@", url))


def named_parameter(name: str) -> str:
    """What an error calls a parameter that isn't known: by its name, unless that may be the end of a password."""
    if "@" not in name:
        return f"the parameter {name!r}"
    return "an '@' behind a '?'; in a password, percent-encode '/', '?', '#' and '@', and in a parameter '@'"
