"""URLs as errors and logs show them."""

import re
from typing import Final
from urllib.parse import unquote

__all__ = ["named_parameter", "redacted"]

_PASSWORD: Final = re.compile(r"(?<=://)([^:@/?#]*):.*@")
_PARAMETER: Final = re.compile(r"(?<=[?&])([^=&]*)(=[^&]*)?")


def redacted(url: str) -> str:
    """A URL as it may be shown: without its password, and of its parameters the names alone.

    A misspelt name has a secret behind it as easily as a right one.
    """
    return _PARAMETER.sub(_name_alone, _PASSWORD.sub(r"\1:***@", url))


def named_parameter(name: str) -> str:
    """What an error calls a parameter that isn't known: by its name, unless that may be the end of a password."""
    if "@" not in name:
        return f"the parameter {name!r}"
    return "an '@' behind a '?'; in a password, percent-encode '/', '?', '#' and '@', and in a parameter '@'"


def _name_alone(parameter: re.Match[str]) -> str:
    name, value = parameter[1], parameter[2]
    return "***" if "@" in unquote(name) else f"{name}{'=***' if value else ''}"
