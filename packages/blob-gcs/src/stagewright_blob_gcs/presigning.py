"""URLs that a service account signs, with its own key or by the signing service, and how long they live."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.auth import iam
from google.auth.credentials import Signing
from google.auth.crypt import Signer
from google.auth.transport.requests import Request

from stagewright.duration import Duration
from stagewright.presigned_urls import PresignedUrl, seconds_to_sign
from stagewright_blob_gcs.bucket import Bucket
from stagewright_blob_gcs.failures import Doing

__all__ = ["presign"]

_BY_OWN_KEY: Final = timedelta(days=7)
_BY_SERVICE: Final = timedelta(hours=12)
"""The keys of the signing service are changed now and then; for so long what they signed is good."""


def presign(
    bucket: Bucket, key: str, *, method: str, expires: Duration, content_type: str | None = None
) -> PresignedUrl:
    """A URL for one object, one method and the content type; it ends with the key that signed it at the latest.

    Raises:
        BlobAccessDeniedError: If the identity of this process may not sign.
        BlobStoreRefusedError: If it isn't known in whose name to sign.
        BlobStoreUnavailableError: If the signing service can't be reached.
    """
    doing = bucket.doing("sign a URL for", key)
    seconds_to_sign(expires)
    with doing.translated():
        signer, life = _signer(bucket, doing)
        now = datetime.now(UTC)
        seconds = seconds_to_sign(expires, at_most=life)
        url = bucket.blob(key).generate_signed_url(
            version="v4",
            expiration=timedelta(seconds=seconds),
            method=method,
            content_type=content_type,
            credentials=signer,
            api_access_endpoint=bucket.client.api_endpoint,
        )
    return PresignedUrl(url, now + timedelta(seconds=seconds))


class _SignedByService(Signing):
    """Signs in the name of a service account by asking the signing service, `signBlob`."""

    def __init__(self, signer: iam.Signer, account: str) -> None:
        self._signer = signer
        self._account = account

    def sign_bytes(self, message: bytes) -> bytes:
        """Ask for a signature."""
        return bytes(self._signer.sign(message))

    @property
    def signer_email(self) -> str:
        """In whose name it is."""
        return self._account

    @property
    def signer(self) -> iam.Signer:
        """What asks."""
        return self._signer


def _signer(bucket: Bucket, doing: Doing) -> tuple[Signing, timedelta]:
    """What signs, and for how long its signatures are good at the most."""
    credentials, account = bucket.credentials, bucket.settings.signing_account
    if isinstance(credentials, Signing) and account in (None, credentials.signer_email):
        # One that impersonates another, for instance, asks the service by itself.
        has_key = isinstance(credentials.signer, Signer) and not isinstance(credentials.signer, iam.Signer)
        return credentials, _BY_OWN_KEY if has_key else _BY_SERVICE
    request = Request()
    named = account or _account_of(credentials, request)
    if named is None:
        raise doing.refused(
            "these credentials are no service account's; say by signing_account whose name to sign in"
        )
    return _SignedByService(iam.Signer(request, credentials, named), named), _BY_SERVICE


def _account_of(credentials: Any, request: Request) -> str | None:  # Any: Google's libraries have few types
    account = getattr(credentials, "service_account_email", None)
    if account == "default":
        # A machine learns its account's name with its first token.
        credentials.refresh(request)
        account = credentials.service_account_email
    return str(account) if account and account != "default" else None
