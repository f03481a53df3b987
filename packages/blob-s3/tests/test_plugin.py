"""Buckets by URL: in a kernel, in the conformance suite, and at no cost to who doesn't use them."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import stagewright_blob_s3 as package
from stagewright import StageContext, define_workflow, open_kernel, stage
from stagewright.commands import CreateRun, PurgeRuns
from stagewright.errors import BlobStoreRefusedError, BlobStoreUnavailableError, InvalidSettingError
from stagewright.hosting import drive_run
from stagewright.plugins import AdapterOptions, discover_plugins
from stagewright.status import Status
from stagewright.system import SystemClock
from stagewright_blob_s3 import S3BlobStore
from stagewright_blob_s3.plugin import empty, open_bucket, stagewright_conformance_targets
from stagewright_conformance import Capabilities
from stagewright_test_support.servers.launch import free_port

VENDORS = ("boto3", "botocore", "urllib3")
RUN = """
import sys
from stagewright.cli.application import run_application

code = run_application(sys.argv[1:])
assert code == 0, code
assert "stagewright_blob_s3.plugin" in sys.modules
found = [name for name in {vendors!r} if name in sys.modules]
assert not found, found
"""


@stage("enlarge")
async def enlarge(ctx: StageContext[int]) -> str:
    await ctx.storage.save_bytes("raw", bytes(range(256)))
    return "x" * ctx.input


@stage("measure")
async def measure(ctx: StageContext[str]) -> int:
    return len(ctx.input)


workflow = define_workflow("sizes", input=int).pipe(enlarge).pipe(measure).build()


@pytest.fixture
def place(ministack: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bucket, with its keys where Amazon's tools look for them."""
    keys = ministack.session.get_credentials()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return ministack


def url_of(place: Any, prefix: str) -> str:
    return f"s3://{place.bucket}/{prefix}?endpoint_url={place.address}&attempts=2"


@pytest.mark.guarantee("blobs.opened-by-url")
async def test_a_kernel_keeps_its_large_values_in_a_bucket(place: Any) -> None:
    url = url_of(place, "of a kernel")
    store = S3BlobStore(url)
    async with open_kernel(workflow, "memory://", blob_store=url) as kernel:
        created = await kernel.dispatch(CreateRun("sizes", 100_000))
        run = await drive_run(kernel, created.run_id)
        assert (run.status, run.output) == (Status.COMPLETED, 100_000)
        kept = [key async for key in store.list("")]
        assert len(kept) >= 2
        assert all(created.run_id in key or "spill" in key for key in kept)
        await kernel.dispatch(PurgeRuns(older_than=SystemClock().now()))
        assert [key async for key in store.list("")] == []
    await store.close()


async def test_what_is_wrong_with_a_bucket_shows_when_it_is_opened(place: Any) -> None:
    async def opened(url: str) -> None:
        async with open_kernel(workflow, "memory://", blob_store=url):
            pytest.fail("it was opened")

    with pytest.raises(BlobStoreRefusedError, match="NoSuchBucket"):
        await opened(url_of(replace(place, bucket="there-is-none"), "x"))
    with pytest.raises(BlobStoreUnavailableError):
        await opened(url_of(replace(place, address=f"http://127.0.0.1:{free_port()}"), "x"))
    with pytest.raises(InvalidSettingError, match="has the parameter 'secret'"):
        await opened("s3://bucket/x?secret=hidden")


async def test_the_suite_can_be_pointed_at_a_bucket(
    place: Any, open_store: Callable[..., S3BlobStore]
) -> None:
    [target] = stagewright_conformance_targets()
    assert set(target.lacks) <= set(Capabilities.__dataclass_fields__)
    url = target.at(server=url_of(place, "of the suite").removeprefix("s3://"))
    neighbour = open_store(place, prefix="of the suite's neighbour")
    await neighbour.put("kept", b"1")
    async with open_bucket(url, AdapterOptions()) as opened:
        assert opened.served == ("blob_store",)
        assert opened.blob_store is not None
        await opened.blob_store.put("a", b"1")
        await empty(url)
        assert not await opened.blob_store.has("a")
    assert await neighbour.has("kept")
    with pytest.raises(RuntimeError, match="is closed"):
        await opened.blob_store.has("a")


def test_the_plugin_is_found() -> None:
    found = discover_plugins()
    assert "s3" in found.adapters().schemes
    assert "S3" in {target.name for target in found.conformance_targets()}


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"]])
@pytest.mark.guarantee("plugins.vendors-imported-when-used")
def test_a_command_that_opens_no_bucket_imports_no_vendor(arguments: list[str]) -> None:
    command = [sys.executable, "-c", RUN.format(vendors=VENDORS), *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_found_and_kept() -> None:
    for name in package.__all__:
        value = getattr(package, name)
        assert value.__name__ == name
        assert vars(package)[name] is value
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="module 'stagewright_blob_s3' has no attribute 'nothing'"):
        _ = package.nothing  # type: ignore[attr-defined]  # that is the point


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system doesn't fork")
def test_a_forked_child_is_told_to_open_its_own(place: Any) -> None:
    program = f"""
import asyncio, os
from stagewright.errors import ForkedProcessError
from stagewright_blob_s3 import S3BlobStore
store = S3BlobStore({url_of(place, "fork")!r})
asyncio.run(store.put("k", b"1"))
child = os.fork()
if child == 0:
    try:
        asyncio.run(store.get("k"))
    except ForkedProcessError as error:
        os._exit(7 if "S3BlobStore" in str(error) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert asyncio.run(store.get("k")) == b"1"
asyncio.run(store.close())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
