"""Kernels whose blobs lie in a folder that a URL names."""

from pathlib import Path
from typing import Any

import pytest

from stagewright import StageContext, StageResult, Status, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun, PurgeRuns
from stagewright.errors import InvalidSettingError, PortNotServedError
from stagewright.filesystem import FileSystemBlobStore
from stagewright.hosting import drive_run
from stagewright.plugins import PluginSet

NONE = PluginSet()


async def large(ctx: StageContext[Any, dict[str, str]]) -> Any:
    await ctx.storage.save_bytes("kept", b"\x00\xff")
    text = await ctx.step.run("text", lambda: "x" * 500)
    return StageResult(output=text + ctx.config["more"], artifacts={"sheet": [1, 2, 3]})


LARGE = define_stage("large", large, input=Any, output=Any, config=dict[str, str])
FLOW = define_workflow("flow", input=Any).pipe(LARGE).build()


@pytest.mark.guarantee("files.opened-by-url")
async def test_whatever_is_large_lies_in_the_folder_until_its_run_is_purged(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    opening = open_kernel(
        FLOW, "memory://", blob_store=folder.as_uri(), plugins=NONE, spill_threshold_bytes=300
    )
    async with opening as kernel:
        config = {"large": {"more": "y" * 400}}
        created = await kernel.dispatch(CreateRun("flow", None, config=config))
        run = await drive_run(kernel, created.run_id)
        assert (run.status, run.output) == (Status.COMPLETED, "x" * 500 + "y" * 400)
        store = FileSystemBlobStore(folder)
        keys = [key.removeprefix(f"workflow-v2/flow/{run.id}/") async for key in store.list("")]
        kinds = [key.split("-")[0].rsplit("/", key.count("/steps/") or 0)[0] for key in keys]
        assert kinds == [
            "_jobs/large",
            "large/artifacts/sheet",
            "large/output",
            "large/steps",
            "large/storage/kept",
        ]
        assert (await kernel.dispatch(PurgeRuns(kernel.ports.clock.now()))).purged == 1
    assert [path for path in folder.rglob("*") if not path.is_dir()] == []
    assert list((folder / "blobs").iterdir()) == []


@pytest.mark.parametrize("port", ["url", "job_transport", "step_ledger"])
async def test_a_folder_serves_blobs_alone(tmp_path: Path, port: str) -> None:
    ports = {"url": "memory://", port: tmp_path.as_uri()}
    with pytest.raises(PortNotServedError, match="blob_store"):
        async with open_kernel(FLOW, **ports, plugins=NONE):  # type: ignore[arg-type]  # names of ports
            pytest.fail("a folder can't serve this")


async def test_a_url_that_names_no_folder_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match="in the place of a host"):
        async with open_kernel(FLOW, "memory://", blob_store="file://blobs", plugins=NONE):
            pytest.fail("this names no folder")
