"""A process that forks while its kernel is at work, and spawns, in which everybody creates runs at once.

    python forking_process.py URL TOLD

Each process writes one line of JSON into the file TOLD: what its first use of the parent's kernel raised, the runs that
it created with what each of them was given, and what it would be called as a worker.
"""

import json
import multiprocessing
import os
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial

from stagewright import Kernel, StageContext, SyncKernel, define_workflow, open_kernel, stage
from stagewright.commands import CreateRun
from stagewright.errors import ForkedProcessError
from stagewright.hosting import wait_for_run
from stagewright.records import RunRecord
from stagewright_host_node import NodeHost

CHILDREN = 4
EACH = 50


@stage("keep")
async def keep(ctx: StageContext[str]) -> str:
    return ctx.input


FLOW = define_workflow("keep", input=str).pipe(keep).build()


def work(url: str, told: str, who: str, refused: str | None = None) -> None:
    """Create runs by a kernel of this process's own."""
    with SyncKernel(lambda: open_kernel(FLOW, url)) as kernel:
        tell(told, who, refused, *create_all(kernel, who))


def create_all(kernel: SyncKernel, who: str) -> tuple[dict[str, str], str]:
    created = {}
    for number in range(EACH):
        text = f"{who} {number}"
        run_id = kernel.dispatch(CreateRun("keep", text)).run_id
        run = kernel.call(partial(run_of, run_id))
        created[run_id] = str(None if run is None else run.input)
        assert created[run_id] == text
    return created, kernel.call(name_of_a_host)


async def run_of(run_id: str, kernel: Kernel) -> RunRecord | None:
    return await kernel.runs.get(run_id)


async def name_of_a_host(kernel: Kernel) -> str:
    return NodeHost(kernel, worker_id="label").worker_id


def tell(told: str, who: str, refused: str | None, created: dict[str, str], worker: str) -> None:
    facts = {"who": who, "refused": refused, "created": created, "worker": worker}
    descriptor = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (json.dumps(facts) + "\n").encode())
    os.close(descriptor)


def use_of_parents(kernel: SyncKernel) -> str | None:
    try:
        kernel.dispatch(CreateRun("keep", "never"))
    except ForkedProcessError as error:
        return str(error)
    return None


def fork(kernel: SyncKernel, url: str, told: str, who: str) -> int:
    child = os.fork()
    if child == 0:
        try:
            work(url, told, who, use_of_parents(kernel))
            # Leaving the block of the parent's kernel as any code would, then the usual end of a process.
            kernel.close()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.exit(0)
    return child


def main(url: str, told: str) -> None:
    left = threading.Event()
    # Somebody who is at something all the time when the process forks.
    threading.Thread(target=lambda: [None for _ in iter(lambda: left.wait(0.001), True)], daemon=True).start()
    with SyncKernel(lambda: open_kernel(FLOW, url, create_schema=True)) as kernel:
        first = kernel.dispatch(CreateRun("keep", "first")).run_id
        # Nobody works on it; but the kernel listens from now on.
        with suppress(TimeoutError):
            kernel.call(lambda inner: wait_for_run(inner, first, timeout=0.2))
        spawned = multiprocessing.get_context("spawn").Process(target=work, args=(url, told, "spawned"))
        spawned.start()
        children = [fork(kernel, url, told, f"child-{number}") for number in range(CHILDREN)]
        tell(told, "parent", None, *create_all(kernel, "parent"))
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        spawned.join()
        assert [*codes, spawned.exitcode] == [0] * (CHILDREN + 1), codes
    left.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
