"""The handlers that Restate calls, a process of its own: `python -m benchmarks.peers.restate_service PORT`.

They are served by hypercorn on uvloop, with the settings that Restate's manual tells for production.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["SERVICE", "main"]

SERVICE = "bench"
_NO_END = 2**31 - 1


def _application() -> Any:
    restate: Any = importlib.import_module("restate")
    service = restate.Service(SERVICE)

    async def add_one(amount: int) -> int:
        return amount + 1

    async def three(ctx: Any, amount: int) -> int:
        for number in range(3):
            amount = await ctx.run_typed(f"step-{number}", add_one, restate.RunOptions(), amount)
        return amount

    async def steps(ctx: Any, count: int) -> int:
        total = 0
        for number in range(count):
            total += await ctx.run_typed(f"step-{number}", add_one, restate.RunOptions(), number)
        return total

    service.handler()(three)
    service.handler()(steps)
    return restate.app(services=[service])


def main(arguments: Sequence[str]) -> None:
    """Serve until the process is ended."""
    (port,) = arguments
    hypercorn: Any = importlib.import_module("hypercorn.config")
    serving: Any = importlib.import_module("hypercorn.asyncio")
    uvloop: Any = importlib.import_module("uvloop")
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.h2_max_concurrent_streams = config.keep_alive_max_requests = config.keep_alive_timeout = _NO_END
    config.loglevel = "ERROR"
    uvloop.run(serving.serve(_application(), config))


if __name__ == "__main__":
    main(sys.argv[1:])
