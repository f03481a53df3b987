"""Sweeping orphaned blobs out of a bucket."""

import pytest

from stagewright_blob_gcs import GcsBlobStore
from stagewright_test_support.bucket_sweeps import check_sweeps
from stagewright_test_support.buckets import gcs_bucket


@pytest.mark.guarantee("orphans.found-and-nothing-else")
@pytest.mark.guarantee("orphans.by-the-command")
async def test_orphans_in_a_bucket_are_listed_then_deleted_and_live_runs_keep_theirs(
    gcs_address: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_sweeps(gcs_bucket(gcs_address), GcsBlobStore, sqlite_url, monkeypatch)
