import pytest

from stagewright.bucket_urls import BucketUrl
from stagewright.errors import InvalidSettingError


@pytest.mark.parametrize(
    ("url", "bucket", "prefix", "text"),
    [
        ("s3://bucket", "bucket", "", "s3://bucket"),
        ("S3://bucket/", "bucket", "", "s3://bucket"),
        ("s3://my.bucket-1/a/b c/%20//", "my.bucket-1", "a/b c/%20", "s3://my.bucket-1/a/b c/%20"),
        ("s3://bucket/a@b:c#d", "bucket", "a@b:c#d", "s3://bucket/a@b:c#d"),
    ],
)
def test_a_url_is_a_bucket_and_a_prefix_as_written(url: str, bucket: str, prefix: str, text: str) -> None:
    found = BucketUrl.parse(url, "s3")
    assert (found.bucket, found.prefix, dict(found.parameters)) == (bucket, prefix, {})
    assert str(found) == text


def test_parameters_are_decoded_and_not_part_of_its_text() -> None:
    found = BucketUrl.parse("s3://bucket/p?one=a%26b&two=", "s3", ("one", "two", "three"))
    assert found.parameters == {"one": "a&b", "two": ""}
    assert str(found) == "s3://bucket/p"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("gs://bucket", "must be a URL such as 's3://bucket/prefix'"),
        ("s3:bucket", "must be a URL such as"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://a b", "names no bucket"),
        ("s3://bucket//a", "a slash at its start"),
        ("s3://bucket/a\x00", "a control character"),
        ("s3://bucket?three=3", "has the parameter 'three', and there are only one, two"),
        ("s3://bucket?one=1&one=2", "has the parameter 'one' twice"),
        ("s3://bucket:9000/a", "names a user or a port"),
    ],
)
def test_what_is_no_such_url_is_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        BucketUrl.parse(url, "s3", ("one", "two"))
    assert caught.value.setting == "url"
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://me:hidden@bucket/a",
        "s3://me:hid/den@bucket",
        "gs://me:hidden@b/a",
        "s3://b?key=hidden",
        "s3://bucket?a=b&hid@den",
    ],
)
def test_what_may_be_secret_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        BucketUrl.parse(url, "s3")
    assert "hid" not in f"{caught.value}{caught.value!r}"
