"""Processes that fork while a kernel is at work: nothing is shared that must not be, and the child is told."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stagewright import StageContext, define_workflow, open_kernel, stage

pytestmark = pytest.mark.slow

_PROGRAM = Path(__file__).with_name("forking_process.py")
_RUNS_EACH = 50


@stage("keep")
async def keep(ctx: StageContext[str]) -> str:
    return ctx.input


@pytest.mark.guarantee("hosts.a-fork-is-told")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system doesn't fork")
async def test_parent_and_children_create_runs_at_once(url: str, tmp_path: Path) -> None:
    told = tmp_path / "told.jsonl"
    command = [sys.executable, str(_PROGRAM), url, str(told)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = {line["who"]: line for line in map(json.loads, told.read_text().splitlines())}
    children = [f"child-{number}" for number in range(4)]
    assert sorted(lines) == sorted([*children, "parent", "spawned"])
    for name in children:
        assert "was made before the process forked" in lines[name]["refused"]
    # No answer was somebody else's, and no id was given twice.
    created: dict[str, str] = {}
    for line in lines.values():
        assert len(line["created"]) == _RUNS_EACH
        assert not created.keys() & line["created"].keys()
        created |= line["created"]
    assert len({line["worker"] for line in lines.values()}) == len(lines)
    async with open_kernel(define_workflow("keep", input=str).pipe(keep).build(), url) as kernel:
        for run_id, text in created.items():
            run = await kernel.runs.get(run_id)
            assert run is not None
            assert run.input == text
