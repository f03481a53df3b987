"""Options beside a URL and in it, and what is refused of them."""

from dataclasses import fields
from typing import Any

import pytest

from stagewright.errors import InvalidBlobKeyError, InvalidSettingError
from stagewright_blob_gcs import GcsBlobStore, GcsSettings
from stagewright_blob_gcs.settings import GcsOptions

WHOLE = (
    "gs://some-bucket/a/prefix?signing_account=a@p.iam.gserviceaccount.com"
    "&endpoint_url=https://storage.example/&connections=3&part_size=262144&retry_for=9&connect_timeout=1.5&read_timeout=7"
)


def settings_of(url: str, **options: Any) -> GcsSettings:
    return GcsBlobStore(url, **options)._settings


def test_every_setting_may_stand_in_the_url() -> None:
    assert settings_of(WHOLE) == GcsSettings(
        endpoint_url="https://storage.example/",
        signing_account="a@p.iam.gserviceaccount.com",
        connections=3,
        part_size=262_144,
        retry_for=9.0,
        connect_timeout=1.5,
        read_timeout=7.0,
    )
    assert set(GcsOptions.__annotations__) == {field.name for field in fields(GcsSettings)}


def test_settings_may_stand_beside_the_url_and_have_defaults() -> None:
    assert settings_of("gs://bucket") == GcsSettings()
    assert settings_of("gs://bucket?retry_for=2", connections=3) == GcsSettings(retry_for=2, connections=3)
    assert repr(GcsBlobStore("gs://bucket/a/b/?retry_for=2")) == "GcsBlobStore('gs://bucket/a/b')"


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("gs://bucket?retry_for=2", {"retry_for": 2}, "retry_for='2' is in the URL and beside it"),
        ("gs://bucket?retry_for=long", {}, "retry_for='long' is no number"),
        ("gs://bucket?connections=0", {}, "connections=0 must be a number from 1 to 1,000"),
        ("gs://bucket", {"part_size": 262_145}, "part_size=262145 must be a multiple of 262144"),
        ("gs://bucket", {"signing_account": "me"}, "must be the e-mail address of a service account"),
        ("gs://bucket", {"endpoint_url": "storage"}, "must be a URL such as"),
        ("s3://bucket", {}, "must be a URL such as 'gs://bucket/prefix'"),
        ("gs://bucket?token=hidden", {}, "has the parameter 'token'"),
        ("gs://KEY:hidden@bucket", {}, "credentials come by the vendor's own chain alone"),
        ("gs://bucket", {"endpoint_url": "https://example:hidden@storage.example"}, "names a user"),
        ("gs://bucket?endpoint_url=http://example:a%3Fhidden@127.0.0.1:1", {}, "names a user"),
        ("gs://bucket?endpoint_url=http://example:a%23hidden@127.0.0.1:1", {}, "names a user"),
        ("gs://bucket?endpoint_url=http://example:a?b&hidden@127.0.0.1:1", {}, "percent-encode"),
        ("gs://bucket?endpoint_url=http://storage.example:x", {}, "must be a URL such as"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(url: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        settings_of(url, **options)
    assert told in str(caught.value)
    assert "hidden" not in f"{caught.value}{caught.value!r}"


async def test_names_that_a_bucket_has_no_object_for_need_a_prefix() -> None:
    store = GcsBlobStore("gs://bucket")
    for key in (".", ".."):
        with pytest.raises(InvalidBlobKeyError, match="give the store a prefix"):
            await store.put(key, b"1")
        assert not await store.has(key)
    await store.close()
