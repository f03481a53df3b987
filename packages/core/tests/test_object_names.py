import pytest

from stagewright.errors import BlobNotFoundError, InvalidBlobKeyError
from stagewright.object_names import ObjectNames


@pytest.mark.parametrize("prefix", ["", "a", "a/b"])
def test_a_name_is_the_prefix_and_the_key_as_it_is(prefix: str) -> None:
    names = ObjectNames(prefix)
    for key in ("k", "/k", "a//b/", "..", "%2F ?#", "ключ"):
        name = names.of(key)
        assert name == f"{names.start}{key}"
        assert names.key(name) == key
        assert names.existing(key) == name


def test_what_is_no_key_has_no_name() -> None:
    names = ObjectNames("p")
    for key in ("", "a\n", "x" * 901):
        with pytest.raises(InvalidBlobKeyError):
            names.of(key)
        with pytest.raises(BlobNotFoundError) as caught:
            names.existing(key)
        assert caught.value.key == key
    assert names.that_may_exist(["b", "", "a", "b"]) == ["p/a", "p/b"]


def test_a_name_has_as_many_bytes_as_a_bucket_takes() -> None:
    assert len(ObjectNames("p" * 123).of("k" * 900)) == 1_024
    with pytest.raises(InvalidBlobKeyError, match=r"with the store's prefix it has 1025 bytes"):
        ObjectNames("p" * 124).of("k" * 900)
    with pytest.raises(InvalidBlobKeyError, match="a bucket takes 1024"):
        ObjectNames("").of("é" * 513)


def test_names_that_a_bucket_refuses_are_no_keys() -> None:
    names = ObjectNames("", {".", ".."})
    with pytest.raises(InvalidBlobKeyError, match="give the store a prefix"):
        names.of(".")
    assert ObjectNames("p", {".", ".."}).of(".") == "p/."
