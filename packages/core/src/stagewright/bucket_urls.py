"""URLs of buckets, such as `s3://bucket/prefix?region=…`, by which stores of objects are opened."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self
from urllib.parse import parse_qsl

from stagewright.errors import InvalidSettingError
from stagewright.shown_urls import named_parameter

__all__ = ["BucketUrl"]

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class BucketUrl:
    """A bucket, and the part of it that a store may use. As text it has no parameters.

    Attributes:
        scheme: Such as `s3`.
        bucket: The bucket's name.
        prefix: What the names of all objects of the store begin with, before a slash; empty for the whole bucket.
        parameters: Those after `?`, decoded.
    """

    scheme: str
    bucket: str
    prefix: str
    parameters: Mapping[str, str]

    @classmethod
    def parse(cls, url: str, scheme: str, parameters: Collection[str] = ()) -> Self:
        """Take a URL apart; bucket and prefix are read as they are written, without percent-encoding.

        Args:
            url: The URL.
            scheme: The scheme that it has to have.
            parameters: The names that may stand after `?`.

        Raises:
            InvalidSettingError: If it is no such URL. What may be secret in it isn't shown.
        """
        start, _, query = url.partition("?")
        written, mark, place = start.partition("://")
        authority, _, prefix = place.partition("/")
        has_user = "@" in authority or ":" in authority
        shown = f"{written}{mark}{'***' if has_user else place}"
        if written.lower() != scheme or not mark:
            raise InvalidSettingError("url", shown, f"must be a URL such as '{scheme}://bucket/prefix'")
        if has_user:
            problem = "names a user or a port, and credentials come by the vendor's own chain alone: give the bucket"
            raise InvalidSettingError("url", shown, problem)
        if _BUCKET.fullmatch(authority) is None:
            problem = f"names no bucket: {authority!r} must be 3 or more letters, digits, dots, hyphens or underscores"
            raise InvalidSettingError("url", shown, problem)
        prefix = prefix.rstrip("/")
        if _CONTROL.search(prefix) or prefix.startswith("/"):
            problem = "has a prefix with a control character or with a slash at its start; give plain text"
            raise InvalidSettingError("url", shown, problem)
        return cls(scheme, authority, prefix, MappingProxyType(_parameters(shown, query, parameters)))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}{'/' * bool(self.prefix)}{self.prefix}"


def _parameters(shown: str, query: str, known: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            problem = f"has {named_parameter(name)}, and there are only {', '.join(sorted(known)) or 'none'}"
            raise InvalidSettingError("url", shown, problem)
        if name in found:
            raise InvalidSettingError("url", shown, f"has the parameter {name!r} twice; give it once")
        found[name] = value
    return found
