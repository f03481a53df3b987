"""A forked child that comes back from a body, run in a process that may fork."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

SCRIPT = """
import asyncio, os, sys
from stagewright import BlockingStageContext, StageContext, define_workflow, open_kernel, stage
from stagewright.commands import CreateRun
from stagewright.hosting import drive_run


def fork() -> int:
    child = os.fork()
    if child == 0:
        return -1
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


async def fork_in_step() -> int:
    return fork()


@stage("body")
async def body(ctx: StageContext[None]) -> int:
    if KIND == "body":
        return fork()
    if KIND == "raises":
        code = fork()
        if code == -1:
            raise ValueError("in the child")
        return code
    return await ctx.step.run("fork", fork_in_step if KIND == "step" else fork, returns=int)


@stage("plain")
def plain(ctx: BlockingStageContext[None]) -> int:
    return ctx.step.run("fork", fork, returns=int) if KIND == "plain body's step" else fork()


async def main() -> None:
    workflow = define_workflow("forks", input=None).pipe(plain if KIND.startswith("plain body") else body).build()
    async with open_kernel(workflow, "memory://") as kernel:
        created = await kernel.dispatch(CreateRun("forks", None))
        run = await drive_run(kernel, created.run_id)
        print(KIND, run.status, run.output, sep=";")


for KIND in sys.argv[1:]:
    asyncio.run(main())
"""


@pytest.mark.guarantee("hosts.a-forked-child-ends")
def test_a_forked_child_that_comes_back_ends_there() -> None:
    kinds = ["body", "raises", "step", "plain step", "plain body", "plain body's step"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *kinds],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # One process tells the end of each run: the parent, which saw its child leave with 70.
    assert done.stdout.splitlines() == [f"{kind};COMPLETED;70" for kind in kinds]
    assert done.stderr.count("end a forked child by os._exit") == len(kinds)
