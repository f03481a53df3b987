"""Blobs as files of one machine."""

from stagewright.filesystem.blob_store import FileSystemBlobStore

__all__ = ["FileSystemBlobStore"]
