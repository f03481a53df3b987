"""The client of boto3, and the few of its calls that are used."""

from typing import Any, Final, Protocol, TypeAlias, cast

import boto3  # type: ignore[import-untyped]  # it has no types of its own
from botocore.config import Config  # type: ignore[import-untyped]  # as above

from stagewright_blob_s3.settings import S3Settings

__all__ = ["Answer", "S3Client", "connect", "session_of"]

Answer: TypeAlias = dict[str, Any]  # Any: botocore makes answers out of its service model
_DEFAULT_REGION: Final = "us-east-1"


class S3Client(Protocol):
    """What is used of boto3's client."""

    def put_object(self, **arguments: Any) -> Answer: ...
    def get_object(self, **arguments: Any) -> Answer: ...
    def head_object(self, **arguments: Any) -> Answer: ...
    def delete_object(self, **arguments: Any) -> Answer: ...
    def delete_objects(self, **arguments: Any) -> Answer: ...
    def list_objects_v2(self, **arguments: Any) -> Answer: ...
    def generate_presigned_url(self, operation: str, **arguments: Any) -> str: ...
    def close(self) -> None: ...


class S3Uploads(Protocol):
    """What is used of boto3's client for blobs in parts."""

    def create_multipart_upload(self, **arguments: Any) -> Answer: ...
    def upload_part(self, **arguments: Any) -> Answer: ...
    def complete_multipart_upload(self, **arguments: Any) -> Answer: ...
    def abort_multipart_upload(self, **arguments: Any) -> Answer: ...


class WholeClient(S3Client, S3Uploads, Protocol):
    """Both."""


def session_of(settings: S3Settings) -> Any:  # Any: boto3's own session
    """A session that takes credentials from where Amazon's tools take them."""
    return boto3.Session(region_name=settings.region)


def connect(session: Any, settings: S3Settings) -> WholeClient:
    """A client of that session; nothing is sent yet."""
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": settings.addressing_style},
        retries={"mode": settings.retry_mode, "total_max_attempts": settings.attempts},
        max_pool_connections=settings.connections,
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        request_checksum_calculation=settings.checksums,
        response_checksum_validation=settings.checksums,
        tcp_keepalive=True,
        user_agent_extra="stagewright",
    )
    region = settings.region or session.region_name
    if region is None and settings.endpoint_url is not None:
        region = _DEFAULT_REGION
    client = session.client("s3", region_name=region, endpoint_url=settings.endpoint_url, config=config)
    return cast("WholeClient", client)
