"""What Google's libraries raise, as errors of Stagewright's."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud.storage import exceptions as storage  # type: ignore[import-untyped]  # it has no types of its own
from requests import exceptions as http

from stagewright.errors import (
    BlobAccessDeniedError,
    BlobNotFoundError,
    BlobStoreRefusedError,
    BlobStoreUnavailableError,
    StagewrightError,
)

__all__ = ["Doing", "VendorFailure"]

_SECRET: Final = re.compile(
    r"(?i)((?:upload_id|x-goog-signature|signature|access_token|assertion)=)[^&\s'\")]+"
)
_LONGEST: Final = 300
_NO_BUCKET: Final = "bucket does not exist"
_PASSING: Final = (408, 429)


class VendorFailure(Exception):
    """What a vendor's error said, where it held something that nobody may see: its type and its text without that."""


@dataclass(frozen=True, slots=True)
class Doing:
    """One thing that a store is asked for.

    Attributes:
        store: The store, without anything secret.
        what: What it is to do, such as `read the blob 'a'`.
        key: The blob that has to be there; None where none has to.
    """

    store: str
    what: str
    key: str | None = None

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raises what Google's libraries raise inside as an error of Stagewright's, with the other as its cause."""
        try:
            yield
        except StagewrightError:
            raise
        except (
            api.GoogleAPIError,
            auth.GoogleAuthError,
            storage.InvalidResponse,
            storage.DataCorruption,
            http.RequestException,
            ConnectionError,
            TimeoutError,
        ) as error:
            raise self._of(error) from _shown(error)

    def unavailable(self, problem: str) -> BlobStoreUnavailableError:
        """The store couldn't this time."""
        return BlobStoreUnavailableError(_in_one_line(problem), self.store, self.what)

    def refused(self, problem: str) -> BlobStoreRefusedError:
        """The store wouldn't, and won't."""
        return BlobStoreRefusedError(_in_one_line(problem), self.store, self.what)

    def denied(self, problem: str) -> BlobAccessDeniedError:
        """The store knows no credentials for this."""
        return BlobAccessDeniedError(_in_one_line(problem), self.store, self.what)

    def _of(self, error: Exception) -> StagewrightError:
        told = str(error)
        match error:
            case api.RetryError():
                return self.unavailable(f"{told} {error.cause or ''}")
            case api.GoogleAPICallError():
                return self._of_status(int(error.code or 0), told)
            case storage.InvalidResponse():
                status = int(error.response.status_code)
                return self._of_status(status, f"status {status}: {error.response.text or told}")
            case auth.DefaultCredentialsError():
                return self.denied(told)
            case auth.TransportError():
                is_denied = "PERMISSION_DENIED" in told or '"code": 403' in told
                return self.denied(told) if is_denied else self.unavailable(told)
            case auth.GoogleAuthError():
                return self.unavailable(told) if error.retryable else self.denied(told)
            case http.SSLError() | http.InvalidURL() | http.MissingSchema():
                return self.refused(told)
            case _:
                return self.unavailable(told)

    def _of_status(self, status: int, told: str) -> StagewrightError:
        if status == 404 and self.key is not None and _NO_BUCKET not in told:
            return BlobNotFoundError(self.key)
        if status in _PASSING or status >= 500:
            return self.unavailable(told)
        if status in (401, 403):
            return self.denied(told)
        return self.refused(told)


def _shown(error: Exception) -> Exception:
    """The error, or what may be shown of it: the address of an upload is as good as the right to write it."""
    seen: BaseException | None = error
    while seen is not None:
        if _SECRET.search(str(seen)):
            return VendorFailure(f"{type(error).__name__}: {_in_one_line(str(error))}")
        seen = seen.__cause__ or seen.__context__
    return error


def _in_one_line(text: str) -> str:
    return " ".join(_SECRET.sub(r"\1***", text).split())[:_LONGEST]
