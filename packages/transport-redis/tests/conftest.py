"""Transports on a namespace of the test's own, kernels that use one, and conditions to wait for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from stagewright import Kernel, Workflow, open_kernel
from stagewright.records import Fairness
from stagewright_transport_redis import RedisJobTransport

PATIENCE = 20.0


@pytest.fixture
def server_url(valkey_url: str) -> str:
    """The server's own URL."""
    return valkey_url


@pytest.fixture
def url(server_url: str, redis_prefix: str) -> str:
    """The URL of a namespace of the test's own."""
    return f"{server_url}?namespace={redis_prefix}"


@pytest_asyncio.fixture
async def opened() -> AsyncIterator[Callable[..., RedisJobTransport]]:
    """`opened(url, fairness=None)`: a transport that is closed after the test."""
    async with AsyncExitStack() as stack:

        def open_one(url: str, *, fairness: Fairness | None = None) -> RedisJobTransport:
            transport = RedisJobTransport.from_url(url, fairness=fairness)
            stack.push_async_callback(transport.close)
            return transport

        yield open_one


@pytest.fixture
def transport(url: str, opened: Callable[..., RedisJobTransport]) -> RedisJobTransport:
    """A transport on the test's namespace."""
    return opened(url)


@pytest_asyncio.fixture
async def redis(server_url: str) -> AsyncIterator[Any]:  # Any: of no useful type
    """A client of the same server, for what a hand does there."""
    client = Redis.from_url(server_url, decode_responses=True)
    yield client
    await client.aclose()


@pytest_asyncio.fixture
async def open_flows(url: str, sqlite_url: str) -> AsyncIterator[Callable[..., Awaitable[Kernel]]]:
    """`await open_flows(*workflows, job_transport=url)`: a kernel with runs in SQLite, as each process has its own."""
    async with AsyncExitStack() as stack:

        async def open_one(*workflows: Workflow, **options: Any) -> Kernel:
            given: dict[str, Any] = {"job_transport": url, "create_schema": True, **options}
            return await stack.enter_async_context(open_kernel(workflows, sqlite_url, **given))

        yield open_one


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """`await eventually(condition, within=20)`: until a function, or an async one, answers with truth."""

    async def wait(condition: Callable[[], Any], *, within: float = PATIENCE) -> None:
        async with asyncio.timeout(within):
            while True:
                answer = condition()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.01)

    return wait
