"""What boto3 raises, as errors of Stagewright's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from botocore import exceptions as vendor  # type: ignore[import-untyped]  # it has no types of its own

from stagewright.errors import (
    BlobAccessDeniedError,
    BlobNotFoundError,
    BlobStoreRefusedError,
    BlobStoreUnavailableError,
    StagewrightError,
)

__all__ = ["BROKEN_OFF", "Doing", "code_of", "refused_by_code", "status_of"]

BROKEN_OFF: Final = (
    vendor.HTTPClientError,
    vendor.ConnectionError,
    vendor.IncompleteReadError,
    vendor.ChecksumError,
    vendor.FlexibleChecksumError,
    vendor.ResponseStreamingError,
    ConnectionError,
    TimeoutError,
)
"""An answer that was lost, cut off or garbled on its way."""

_NO_CREDENTIALS: Final = (
    vendor.NoCredentialsError,
    vendor.PartialCredentialsError,
    vendor.CredentialRetrievalError,
    vendor.NoAuthTokenError,
    vendor.TokenRetrievalError,
    vendor.SSOError,
    vendor.ProfileNotFound,
    vendor.RefreshWithMFAUnsupportedError,
)
_DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "NotSignedUp",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_PASSING: Final = frozenset(
    {
        "BadDigest",
        "ConditionalRequestConflict",
        "IncompleteBody",
        "OperationAborted",
        "RequestTimeout",
        "RequestTimeoutException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
_LONGEST: Final = 300


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
        """Raises what boto3 raises inside as an error of Stagewright's, with the other as its cause."""
        try:
            yield
        except StagewrightError:
            raise
        except vendor.ClientError as error:
            raise self._of_answer(error) from error
        except _NO_CREDENTIALS as error:
            raise self.denied(str(error)) from error
        except vendor.SSLError as error:
            raise self.refused(str(error)) from error
        except (*BROKEN_OFF, vendor.MetadataRetrievalError) as error:
            raise self.unavailable(str(error)) from error
        except vendor.BotoCoreError as error:
            raise self.refused(str(error)) from error
        except RuntimeError as error:
            # This is how botocore says that credentials were renewed and have expired all the same.
            raise self.denied(str(error)) from error

    def unavailable(self, problem: str) -> BlobStoreUnavailableError:
        """The store couldn't this time."""
        return BlobStoreUnavailableError(_in_one_line(problem), self.store, self.what)

    def refused(self, problem: str) -> BlobStoreRefusedError:
        """The store wouldn't, and won't."""
        return BlobStoreRefusedError(_in_one_line(problem), self.store, self.what)

    def denied(self, problem: str) -> BlobAccessDeniedError:
        """The store knows no credentials for this."""
        return BlobAccessDeniedError(_in_one_line(problem), self.store, self.what)

    def _of_answer(self, error: Any) -> StagewrightError:  # Any: botocore has no types
        status, code = status_of(error), code_of(error)
        if code == "MissingContentMD5":
            return self.refused(
                "it takes no deletes in batches with CRC32 checksums; set batch_deletes=False"
            )
        problem = f"{code}: {error.response.get('Error', {}).get('Message') or f'status {status}'}"
        if self.key is not None and (code == "NoSuchKey" or (status == 404 and code in ("404", "NotFound"))):
            return BlobNotFoundError(self.key)
        if status in (401, 403) and code in ("401", "403", "Forbidden"):
            return self.denied(
                f"status {status}, without a word; it may read, write, delete and list, or it may not"
            )
        return refused_by_code(self, code, status, problem)


def refused_by_code(doing: Doing, code: str, status: int, problem: str) -> StagewrightError:
    """The error for what an answer says.

    Args:
        doing: What the store was asked for.
        code: The word for the error.
        status: Of HTTP; 0 where the answer as a whole was a success.
        problem: What is told.
    """
    if code in _PASSING or status == 429 or (status >= 500 and status != 501) or code == "InternalError":
        return doing.unavailable(problem)
    if code in _DENIED or status in (401, 403):
        return doing.denied(problem)
    return doing.refused(problem)


def code_of(error: Any) -> str:  # Any: botocore has no types
    """The word that an answer has for its error; a status where it has none."""
    return str(error.response.get("Error", {}).get("Code") or status_of(error))


def status_of(error: Any) -> int:  # Any: botocore has no types
    """The status of HTTP."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
