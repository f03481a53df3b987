"""Delivering jobs from groups of which only so many may be RUNNING, so that no two claims exceed it together."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.statements.fair_claims import (
    claimable_groups,
    deliver_from_groups,
    deliver_jobs,
    known_buckets,
    lock_buckets,
    make_bucket,
    next_of_group,
    running_of_groups,
)
from stagewright_persistence_sqlalchemy.table_definitions import GROUP_LOCKS
from stagewright_persistence_sqlalchemy.tables import Tables
from stagewright_persistence_sqlalchemy.transaction import Transaction

__all__ = ["FairDequeue"]

_ROUNDS: Final = 3
_GROUPS_FOR_EACH_JOB: Final = 4
_FRONT: Final = 64
"""So many jobs more than are wanted are looked at before the groups are: often enough of their groups have room."""


class FairDequeue:
    """One claim. It holds the locks of the groups that it looked into until its transaction ends, and waits for none.

    Args:
        tables: The store's tables.
        kind: The database.
        tx: The transaction.
        pairs: How many pairs the `serves` filter has; None for no filter.
        parameters: Those of the statements: the cap, the limit, the worker, the time and the pairs.
    """

    def __init__(
        self,
        tables: Tables,
        kind: DatabaseKind,
        tx: Transaction,
        pairs: int | None,
        parameters: Mapping[str, Any],
    ) -> None:
        self._tables = tables
        self._kind = kind
        self._tx = tx
        self._pairs = pairs
        self._limit: int = parameters["limit"]
        self._parameters = dict(parameters) | {"front": self._limit + _FRONT}

    async def rows(self) -> list[Row]:
        """The jobs that were delivered."""
        delivered: list[Row] = []
        for _ in range(_ROUNDS):
            # Whoever had a group before may have filled it since it was seen to have room; others still have some.
            groups = await self._groups()
            if groups:
                delivered = await (self._at_once(groups) if self._kind.composes else self._one_by_one(groups))
            if delivered or not groups:
                break
        return delivered

    async def _groups(self) -> list[Row]:
        """Groups with due jobs and room, from which nobody else claims from now on."""
        statement = claimable_groups(self._tables, self._kind, self._pairs)
        if self._kind.composes or not self._kind.skips_locked:
            return await self._tx.fetch(statement, self._parameters)
        more = self._limit * _GROUPS_FOR_EACH_JOB
        found = await self._tx.fetch(statement, self._parameters | {"limit": more, "front": more + _FRONT})
        for start in range(0, len(found), self._limit):
            groups = await self._locked(found[start : start + self._limit])
            if groups:
                return await self._counted_again(groups)
        return []

    async def _at_once(self, groups: Sequence[Row]) -> list[Row]:
        names = {"groups": [group["group_key"] for group in groups]}
        return await self._tx.fetch(
            deliver_from_groups(self._tables, self._kind, self._pairs), self._parameters | names
        )

    async def _one_by_one(self, groups: Sequence[Row]) -> list[Row]:
        chosen: list[Row] = []
        for group in groups:
            if len(chosen) == self._limit and _place(chosen[-1]) < _place(group):
                break
            of_group = {"group_key": group["group_key"], "room": min(group["room"], self._limit)}
            statement = next_of_group(self._tables, self._kind, self._pairs)
            chosen += await self._tx.fetch(statement, self._parameters | of_group)
            chosen = sorted(chosen, key=_place)[: self._limit]
        if not chosen:
            return []
        positions = {f"position_{number}": row["position"] for number, row in enumerate(chosen)}
        return await self._tx.take(
            deliver_jobs(self._tables, self._kind, len(chosen)), self._parameters | positions
        )

    async def _locked(self, groups: Sequence[Row]) -> list[Row]:
        """Those of the groups from which nobody else claims; groups whose keys share a bucket are locked together."""
        wanted = {_bucket(group) for group in groups}
        locked = await self._lock(wanted)
        missed = wanted - locked
        if missed:
            known = await self._tx.fetch(
                known_buckets(self._tables, len(missed)), _numbered("bucket", missed)
            )
            unknown = missed - {row["bucket"] for row in known}
            for bucket in sorted(unknown):
                await self._tx.execute(make_bucket(self._tables, self._kind), {"bucket": bucket})
            if unknown:
                locked |= await self._lock(unknown)
        return [group for group in groups if _bucket(group) in locked]

    async def _lock(self, buckets: set[int]) -> set[int]:
        rows = await self._tx.fetch(lock_buckets(self._tables, len(buckets)), _numbered("bucket", buckets))
        return {row["bucket"] for row in rows}

    async def _counted_again(self, groups: Sequence[Row]) -> list[Row]:
        keys = _numbered("item", [group["group_key"] for group in groups])
        counted = await self._tx.fetch(running_of_groups(self._tables, len(groups)), keys)
        running = {row["group_key"]: row["taken"] for row in counted}
        cap = self._parameters["cap"]
        rooms = [dict(group) | {"room": cap - running.get(group["group_key"], 0)} for group in groups]
        return [group for group in rooms if group["room"] > 0]


def _bucket(group: Row) -> int:
    return crc32(group["group_key"].encode()) % GROUP_LOCKS


def _place(row: Row) -> tuple[int, int]:
    return -row["priority"], row["position"]


def _numbered(name: str, values: Any) -> dict[str, Any]:  # Any: of either type
    return {f"{name}_{number}": value for number, value in enumerate(values)}
