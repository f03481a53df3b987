"""Buckets on the emulators, as a process reaches them: by a URL, and by what its environment says.

Tests import this module by themselves, since the vendors' clients take long to import.
"""

import json
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import boto3  # type: ignore[import-untyped]  # it has no types of its own

__all__ = ["ANYTHING", "Bucket", "gcs_bucket", "s3_bucket", "s3_session", "s3_session_of_a_new_user"]

ANYTHING: Final = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
}
"""The policy of a user who may do anything in S3."""

_REGION: Final = "us-east-1"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A new bucket.

    Attributes:
        address: Its URL, without what stands behind `?`.
        environment: What the environment of a process has to say for its use.
        options: What stands behind `?` in its URLs.
    """

    address: str
    environment: Mapping[str, str]
    options: str = ""

    def url(self, prefix: str | None = None) -> str:
        """What `open_kernel(…, blob_store=url)` takes: a prefix in the bucket, by default one that nothing has used."""
        return f"{self.address}/{prefix or uuid.uuid4().hex}{self.options}"


def s3_session(key: str, secret: str, token: str | None = None) -> Any:  # Any: boto3 has no types
    """A session of boto3 with these keys."""
    return boto3.Session(
        aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token, region_name=_REGION
    )


def s3_session_of_a_new_user(address: str, policy: Mapping[str, Any] | None = ANYTHING) -> Any:
    """A session of boto3 with the keys of a new user of ministack; None for no policy at all."""
    iam = s3_session("test", "test").client("iam", endpoint_url=address)
    name = f"user-{uuid.uuid4().hex[:12]}"
    iam.create_user(UserName=name)
    keys = iam.create_access_key(UserName=name)["AccessKey"]
    if policy is not None:
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=json.dumps(policy))
    iam.close()
    return s3_session(keys["AccessKeyId"], keys["SecretAccessKey"])


def s3_bucket(address: str) -> Bucket:
    """A bucket on the ministack at an address, and the keys of a user of its own."""
    session, name = s3_session_of_a_new_user(address), _new_name()
    client = session.client("s3", endpoint_url=address)
    client.create_bucket(Bucket=name)
    client.close()
    keys = session.get_credentials()
    environment = {
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_DEFAULT_REGION": _REGION,
    }
    return Bucket(f"s3://{name}", environment, f"?endpoint_url={address}")


def gcs_bucket(address: str) -> Bucket:
    """A bucket on the fake-gcs-server at an address, which asks for no credentials."""
    name = _new_name()
    request = urllib.request.Request(
        f"{address}/storage/v1/b?project=p",
        data=json.dumps({"name": name}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10):
        pass
    return Bucket(f"gs://{name}", {"STORAGE_EMULATOR_HOST": address})


def _new_name() -> str:
    return f"test-{uuid.uuid4().hex[:16]}"
