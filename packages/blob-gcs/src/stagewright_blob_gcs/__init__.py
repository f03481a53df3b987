"""Stagewright's blobs in Google Cloud Storage. A name brings Google's client with it when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagewright_blob_gcs.blob_store import GcsBlobStore
    from stagewright_blob_gcs.settings import GcsSettings
else:
    _HOMES = {"GcsBlobStore": "blob_store", "GcsSettings": "settings"}

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES})


__all__ = ["GcsBlobStore", "GcsSettings"]
