"""Stagewright's blobs in S3. A name is imported, and boto3 with it, when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagewright_blob_s3.blob_store import S3BlobStore
    from stagewright_blob_s3.settings import S3Settings
else:
    _HOMES = {"S3BlobStore": "blob_store", "S3Settings": "settings"}

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES})


__all__ = ["S3BlobStore", "S3Settings"]
