"""A process that has adapters and may be lost at any call of them."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from functools import cache
from typing import Any, Final, TypeVar, cast

from stagewright.plugins import AdapterSet
from stagewright.ports import (
    BlobStore,
    DeliversAtOnce,
    Enlistable,
    EventSink,
    JobTransport,
    Persistence,
    RunReader,
    StepLedger,
    WorkNotifier,
)
from stagewright.records import LeaseSweep

__all__ = ["Process", "ProcessLost"]

P = TypeVar("P")

_PORTS: Final[dict[str, type]] = {
    "persistence": Persistence,
    "job_transport": JobTransport,
    "step_ledger": StepLedger,
    "blob_store": BlobStore,
    "run_reader": RunReader,
    "event_sink": EventSink,
}
_OPTIONAL: Final[dict[type, tuple[type, ...]]] = {
    Persistence: (RunReader, WorkNotifier, Enlistable),
    JobTransport: (Enlistable, DeliversAtOnce),
    StepLedger: (Enlistable,),
    BlobStore: (Enlistable,),
    RunReader: (Enlistable,),
}
_BLOCKS: Final = ("open_read", "open_write")
_READS: Final = ("get", "has", "list", "load_runs", "lock_runs", "count_", "depth", "wait_for_work")


class ProcessLost(BaseException):
    """The process ends here: nothing that is after this runs in it, and what it had open is closed by others."""


class Process:
    """One process of a deployment. Each call of a port is two moments, before it and after it; at one it is lost.

    From then on no call of a port gets through, whoever makes it.

    Attributes:
        moments: The names of the moments that it came to.
        deeds: The numbers of those, from 1, that are next to a call which changed something; at any other one it might
            as well be lost at the deed before or after.
        is_lost: Whether it is.
    """

    def __init__(self, lost_at: int | None = None) -> None:
        """Begin.

        Args:
            lost_at: The how-manieth moment is its last, from 1; None lets it live.
        """
        self.moments: list[str] = []
        self.deeds: list[int] = []
        self.is_lost = False
        self._lost_at = lost_at

    def __str__(self) -> str:
        if not self.is_lost:
            return f"a process that made {len(self.moments)} moments"
        return f"a process lost at moment {len(self.moments)}, {self.moments[-1]}"

    def reach(self, moment: str) -> int:
        """Come to a moment, and say its number.

        Raises:
            ProcessLost: If it is the last one, or is past.
        """
        if not self.is_lost:
            self.moments.append(moment)
            self.is_lost = len(self.moments) == self._lost_at
        if self.is_lost:
            raise ProcessLost(moment)
        return len(self.moments)

    def adapters(self, given: AdapterSet) -> AdapterSet:
        """The same adapters, as this process has them."""
        ports = {field.name: getattr(given, field.name) for field in fields(given) if field.name in _PORTS}
        had = {name: self.having(_PORTS[name], real) for name, real in ports.items() if real is not None}
        return replace(given, **had)

    def having(self, port: type, real: P) -> P:
        """One adapter as this process has it.

        Args:
            port: The Protocol that it is used by.
            real: The adapter.
        """
        optional = tuple(one for one in _OPTIONAL.get(port, ()) if isinstance(real, one))
        return cast(P, _kind_of(port, optional)(self, port, real))


class _Had:
    """An adapter as a process has it."""

    def __init__(self, process: Process, port: type, real: Any) -> None:
        self.process = process
        self.port = port
        self.real = real


@cache
def _kind_of(port: type, optional: tuple[type, ...]) -> type[_Had]:
    members: dict[str, Any] = {}  # Any: methods of every port
    for offered in (port, *optional):
        for name, declared in inspect.getmembers(offered, inspect.isfunction):
            if not name.startswith("_"):
                members[name] = _method(name, declared, offered)
    return type(f"Had{port.__name__}", (_Had,), members)


def _method(name: str, declared: Callable[..., Any], port: type) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(declared):
        return _call(name)
    if name == "transaction":
        return _transaction
    if name == "enlist":
        return _enlist
    if name in _BLOCKS:
        return _block(name)
    return _listing if port is BlobStore and name == "list" else _answer(name)


def _call(name: str) -> Callable[..., Any]:
    async def call(self: _Had, *arguments: Any, **named: Any) -> Any:
        before = self.process.reach(f"before {name}")
        result = await getattr(self.real, name)(*arguments, **named)
        after = self.process.reach(f"after {name}")
        if not name.startswith(_READS) and _has_done(result):
            self.process.deeds += (before, after)
        return result

    return call


def _has_done(result: object) -> bool:
    """Whether a call changed something, by its answer: claims and sweeps that found nothing say so."""
    nothing: tuple[object, ...] = ([], 0, False, LeaseSweep())
    return result is None or result not in nothing


def _answer(name: str) -> Callable[..., Any]:
    def answer(self: _Had, *arguments: Any, **named: Any) -> Any:
        return getattr(self.real, name)(*arguments, **named)

    return answer


def _block(name: str) -> Callable[..., Any]:
    @asynccontextmanager
    async def block(self: _Had, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        self.process.reach(f"before {name}")
        async with getattr(self.real, name)(*arguments, **named) as opened:
            yield opened
            self.process.reach(f"before the end of {name}")
        self.process.reach(f"after {name}")

    return block


@asynccontextmanager
async def _transaction(self: _Had) -> AsyncIterator[Any]:
    self.process.reach("before transaction")
    deeds = len(self.process.deeds)
    async with self.real.transaction() as tx:
        yield self.process.having(self.port, tx)
        before = self.process.reach("before commit")
    after = self.process.reach("after commit")
    if len(self.process.deeds) > deeds:
        self.process.deeds += (before, after)


async def _listing(self: _Had, prefix: str) -> AsyncIterator[str]:
    self.process.reach("before list")
    async for key in self.real.list(prefix):
        yield key
    self.process.reach("after list")


def _enlist(self: _Had, tx: Any) -> Any:
    enlisted = self.real.enlist(tx.real if isinstance(tx, _Had) else tx)
    return None if enlisted is None else self.process.having(self.port, enlisted)
