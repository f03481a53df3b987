"""A blob of 300 MB goes through a process that has room for a part of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("large_blob_process.py")


@pytest.mark.wide
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a program had")
@pytest.mark.guarantee("blobs.large-ones-in-little-memory")
def test_a_blob_of_300_megabytes_takes_little_memory(service: Any) -> None:
    environment = os.environ | {"STORAGE_EMULATOR_HOST": service.address}
    command = [sys.executable, str(PROGRAM), f"gs://{service.bucket}/large", "300"]
    done = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["read"] == told["written"]
    assert told["size"] == 300 << 20
    assert told["grown"] < 160 << 20, told
