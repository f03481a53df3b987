"""URLs that the credentials of this process sign, and how long they live."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from stagewright.duration import Duration
from stagewright.presigned_urls import PresignedUrl, seconds_to_sign
from stagewright_blob_s3.bucket import Bucket
from stagewright_blob_s3.client import Answer

__all__ = ["presign"]

_FOREVER: Final = timedelta(days=10_000)


def presign(bucket: Bucket, key: str, *, method: str, expires: Duration, headers: Answer) -> PresignedUrl:
    """A URL for one object, one method and the headers; it ends with the credentials at the latest.

    Raises:
        BlobAccessDeniedError: If there are no credentials.
        BlobStoreUnavailableError: If they end at this moment and no others can be had yet.
    """
    doing = bucket.doing("sign a URL for", key)
    seconds_to_sign(expires)
    with doing.translated():
        if bucket.credentials is None:
            raise doing.denied("there are no credentials to sign it with")
        # They are renewed by this, where they can be and are about to end.
        bucket.credentials.get_frozen_credentials()
        left, now = _life(bucket.credentials), datetime.now(UTC)
        seconds = seconds_to_sign(expires, at_most=left - now if left is not None else _FOREVER)
        if seconds < 1:
            raise doing.unavailable("the credentials end at this moment; ask again once there are others")
        operation = {"PUT": "put_object", "GET": "get_object"}[method]
        url = bucket.client.generate_presigned_url(
            operation, Params={**bucket.at(key), **headers}, ExpiresIn=seconds, HttpMethod=method
        )
    return PresignedUrl(url, now + timedelta(seconds=seconds))


def _life(credentials: Any) -> datetime | None:  # Any: botocore has no types
    """When credentials end; None for those that don't, or don't say so."""
    # Botocore has no public name for it.
    ends: datetime | None = getattr(credentials, "_expiry_time", None)
    return ends
