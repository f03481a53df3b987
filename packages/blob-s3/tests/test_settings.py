"""Options beside a URL and in it, and what is refused of them."""

from dataclasses import fields
from typing import Any

import pytest

from stagewright.errors import InvalidSettingError
from stagewright_blob_s3 import S3BlobStore, S3Settings
from stagewright_blob_s3.settings import S3Options

WHOLE = (
    "s3://some-bucket/a/prefix?endpoint_url=https://storage.example:9000&region=eu-west-1&addressing_style=path"
    "&checksums=when_required&batch_deletes=false&connections=3&part_size=6000000&retry_mode=adaptive&attempts=2"
    "&connect_timeout=1.5&read_timeout=7"
)


def settings_of(url: str, **options: Any) -> S3Settings:
    return S3BlobStore(url, **options)._settings


def test_every_setting_may_stand_in_the_url() -> None:
    found = settings_of(WHOLE)
    assert found == S3Settings(
        endpoint_url="https://storage.example:9000",
        region="eu-west-1",
        addressing_style="path",
        checksums="when_required",
        batch_deletes=False,
        connections=3,
        part_size=6_000_000,
        retry_mode="adaptive",
        attempts=2,
        connect_timeout=1.5,
        read_timeout=7.0,
    )
    assert set(S3Options.__annotations__) == {field.name for field in fields(S3Settings)}


def test_settings_may_stand_beside_the_url_and_have_defaults() -> None:
    assert settings_of("s3://bucket") == S3Settings()
    assert settings_of("s3://bucket?attempts=2", connections=3) == S3Settings(attempts=2, connections=3)
    assert repr(S3BlobStore("s3://bucket/a/b/?attempts=2")) == "S3BlobStore('s3://bucket/a/b')"


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("s3://bucket?attempts=2", {"attempts": 2}, "attempts='2' is in the URL and beside it"),
        ("s3://bucket?attempts=2&attempts=3", {}, "has the parameter 'attempts' twice"),
        ("s3://bucket?attempts=many", {}, "attempts='many' is no number"),
        ("s3://bucket?attempts=0", {}, "attempts=0 must be a number from 1 to 100"),
        ("s3://bucket?batch_deletes=yes", {}, "batch_deletes='yes' must be true or false"),
        ("s3://bucket?part_size=5", {}, "part_size=5 must be a number from 5,242,880"),
        ("s3://bucket", {"connections": True}, "connections=True must be a number"),
        ("s3://bucket", {"addressing_style": "host"}, "must be one of auto, path, virtual"),
        ("s3://bucket", {"retry_mode": "legacy"}, "must be one of standard, adaptive"),
        ("s3://bucket", {"endpoint_url": "storage:9000"}, "must be a URL such as"),
        ("gs://bucket", {}, "must be a URL such as 's3://bucket/prefix'"),
        ("s3://", {}, "names no bucket"),
        ("s3://b/x", {}, "names no bucket"),
        ("s3://bucket//x", {}, "a slash at its start"),
        ("s3://bucket/a\nb", {}, "a control character"),
        ("s3://bucket?aws_secret_access_key=hidden", {}, "has the parameter 'aws_secret_access_key'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(url: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        settings_of(url, **options)
    assert told in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.guarantee("blobs.no-secret-is-told")
@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://KEY:hidden@bucket/x", {}),
        ("s3://KEY:hid/den@bucket/x", {}),
        ("s3://bucket/x", {"endpoint_url": "https://example:hidden@storage.example"}),
        ("s3://bucket/x", {"endpoint_url": "ftp://example:hidden@storage.example"}),
        ("s3://bucket/x?endpoint_url=http://example:hid%3Fhidden@127.0.0.1:1", {}),
        ("s3://bucket/x?endpoint_url=http://example:hid/den%23hid@127.0.0.1:1", {}),
        ("s3://bucket/x?endpoint_url=http://example:a?hid&hidden@127.0.0.1:1", {}),
        (
            "s3://bucket/x?endpoint_url=http://example:hidden@storage.example",
            {"endpoint_url": "https://storage.example"},
        ),
    ],
)
def test_credentials_in_a_url_are_refused_and_not_shown(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        settings_of(url, **options)
    for shown in (str(caught.value), repr(caught.value)):
        assert "hid" not in shown
        assert "KEY" not in shown
