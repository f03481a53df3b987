"""A worker on the orders: `python worker.py URL`. It notices within seconds that another one is lost."""

import asyncio
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from stagewright import open_kernel
from stagewright_host_node import NodeHost


async def main(url: str) -> None:
    spec = spec_from_file_location("orders_workflow", Path(__file__).parents[1] / "workflow.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["orders_workflow"] = module
    spec.loader.exec_module(module)
    async with open_kernel(module.workflow, url) as kernel:
        host = NodeHost(
            kernel, orchestration_interval="500ms", stale_lease_threshold="2s", job_heartbeat_interval="500ms"
        )
        await host.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
