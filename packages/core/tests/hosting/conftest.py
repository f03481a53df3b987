from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio


@pytest_asyncio.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What a test opens, closed after it."""
    async with AsyncExitStack() as opened:
        yield opened
