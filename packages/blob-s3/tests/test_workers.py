"""`stagewright worker` with its large values in a bucket that hangs."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from stagewright import open_kernel
from stagewright.cli.targets import load_target
from stagewright.commands import CreateRun
from stagewright_test_support.faulty_http import Fault, open_faulty_http

FLOWS = """
from stagewright import StageContext, define_workflow, stage


@stage("enlarge")
async def enlarge(ctx: StageContext[int]) -> str:
    return "x" * ctx.input


workflow = define_workflow("sizes", input=int).pipe(enlarge).build()
"""


@pytest.mark.slow
@pytest.mark.guarantee("hosts.a-store-that-hangs-is-left")
async def test_a_worker_leaves_a_bucket_that_hangs(ministack: Any, sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    keys = ministack.session.get_credentials()
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    registry = load_target(f"{tmp_path / 'flows.py'}:workflow").registry
    async with open_kernel(registry, sqlite_url, create_schema=True) as kernel:
        await kernel.dispatch(CreateRun("sizes", 100_000))
    never = Event()
    with open_faulty_http(ministack.address) as proxy:
        proxy.expect(*[Fault(method="PUT", holds=never)] * 20)
        bucket = f"s3://{ministack.bucket}/of a worker?endpoint_url={proxy.address}"
        where = ("--url", sqlite_url, "--blob-store", bucket, "--shutdown-timeout", "1s")
        worker = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-m", "stagewright.cli", "worker", "flows.py:workflow", *where],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
        )
        try:
            await asyncio.to_thread(proxy.wait_for, "PUT")
            worker.send_signal(signal.SIGTERM)
            _, told = await asyncio.to_thread(worker.communicate, timeout=20)
        finally:
            worker.kill()
            worker.wait()
            never.set()
    assert worker.returncode in (0, 75), told
    assert b"has stopped" in told or worker.returncode == 75
