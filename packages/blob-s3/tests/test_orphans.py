"""Sweeping orphaned blobs out of a bucket."""

import pytest

from stagewright_blob_s3 import S3BlobStore
from stagewright_test_support.bucket_sweeps import check_sweeps
from stagewright_test_support.buckets import s3_bucket


@pytest.mark.guarantee("orphans.found-and-nothing-else")
@pytest.mark.guarantee("orphans.by-the-command")
async def test_orphans_in_a_bucket_are_listed_then_deleted_and_live_runs_keep_theirs(
    s3_address: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_sweeps(s3_bucket(s3_address), S3BlobStore, sqlite_url, monkeypatch)
