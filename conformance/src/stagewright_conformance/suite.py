"""What all suites share: declared gaps, sizes, patience, and the stores under test."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from stagewright.ports import Persistence, RunReader
from stagewright_conformance.capabilities import Capabilities

__all__ = ["Background", "PersistenceSuite", "Scale", "Suite"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large and how patient the suite is; an adapter overrides the fixture `scale` to change it.

    Attributes:
        contenders: How many callers compete at once.
        rows: How many rows they compete for.
        events_each: How many events each of several concurrent writers appends.
        large_blob: Bytes of a blob that is written and read in pieces.
        huge_blob: Bytes of the largest blob that is kept, more than any size at which a store may begin to cut.
        many_blobs: How many blobs a listing has to show, more than one page of any store worth it.
        crashes: At how many moments of a run's life, spread evenly, a process is lost; at all where there are fewer.
        moment: Seconds to watch that something does not happen, and that a listener takes to begin listening.
        patience: Seconds after which something that should have happened has failed.
    """

    contenders: int = 8
    rows: int = 200
    events_each: int = 12
    large_blob: int = 1_000_003
    huge_blob: int = 17_000_003
    many_blobs: int = 1_100
    crashes: int = 12
    moment: float = 0.005
    patience: float = 10.0

    async def soon(self, work: Awaitable[T]) -> T:
        """The result of something that ends by itself; `TimeoutError` once patience is over."""
        async with asyncio.timeout(self.patience):
            return await work

    async def still_waits(self, task: "asyncio.Task[Any]") -> bool:
        """Whether a task has not ended within a moment."""
        await asyncio.wait({task}, timeout=self.moment)
        return not task.done()


class Background:
    """Starts tasks that compete with the test, and ends those that are left when it is over."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `work` beside the test."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        """Cancel what still runs; what the tasks raised was the test's to look at."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.mark.asyncio
class Suite:
    """Fixtures of every suite.

    Fixtures to override: `capabilities` (what the adapter lacks; nothing by default) and `scale` (sizes).

    Raises:
        TypeError: When a class combines suites with tests of one name, of which only one would run.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        suites = [base for base in cls.__mro__[1:] if issubclass(base, Suite)]
        names = Counter(name for suite in suites for name in vars(suite) if name.startswith("test_"))
        lost = sorted(name for name, count in names.items() if count > 1)
        if lost:
            raise TypeError(
                f"{cls.__name__} combines suites that share {', '.join(lost)}; give each its own class"
            )

    @pytest.fixture
    def capabilities(self) -> Capabilities:
        """What the adapter can do; an override sets to False what it lacks."""
        return Capabilities()

    @pytest.fixture
    def scale(self) -> Scale:
        """How large the contention tests are and how long they wait."""
        return Scale()

    @pytest.fixture(autouse=True)
    def _declared_gaps(self, request: pytest.FixtureRequest, capabilities: Capabilities) -> None:
        for marker in request.node.iter_markers("needs"):
            for name in marker.args:
                if not capabilities.has(name):
                    reason = f"the adapter declares that it lacks {name!r}, which this test needs"
                    request.applymarker(pytest.mark.xfail(strict=True, reason=reason))

    @pytest_asyncio.fixture
    async def background(self) -> AsyncIterator[Background]:
        """Tasks that compete with the test."""
        tasks = Background()
        yield tasks
        await tasks.end()


class PersistenceSuite(Suite):
    """Fixtures of the suites over a persistence.

    Fixtures to override: `persistence` (required: an empty store for each test), `competitor` (another handle on
    the same store, as a second process has it; the persistence itself by default), `reader` (the `RunReader` of the
    same store; the persistence itself by default).
    """

    @pytest.fixture
    def persistence(self) -> Persistence:
        """The store under test, empty."""
        raise NotImplementedError("override the fixture `persistence` with an empty store for each test")

    @pytest.fixture
    def competitor(self, persistence: Persistence) -> Persistence:
        """The same store as somebody else sees it."""
        return persistence

    @pytest.fixture
    def reader(self, persistence: Persistence) -> RunReader:
        """Reads what is committed in the same store."""
        if not isinstance(persistence, RunReader):
            raise NotImplementedError("override the fixture `reader` with the RunReader of the same store")
        return persistence
