"""Definitions: the first writer's row stays; and how many runs are pinned to each."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from stagewright.json_values import Json
from stagewright.ports import Persistence
from stagewright.records import RunRecord, VersionCounts
from stagewright.status import Status
from stagewright_conformance.samples import LATER, MOMENT, ODD_JSON, a_definition, a_run, exactly
from stagewright_conformance.suite import PersistenceSuite, Scale

__all__ = ["DefinitionSuite"]


class DefinitionSuite(PersistenceSuite):
    """`DefinitionStore`.

    Fixtures: those of `PersistenceSuite`.
    """

    async def test_runs_keep_their_versions_and_it_is_said_so_at_any_moment(
        self, persistence: Persistence
    ) -> None:
        """`supports_definition_versioning`, `ensure_definition_versioning_detected`: True, at any moment."""
        assert await persistence.ensure_definition_versioning_detected() is True
        assert await persistence.supports_definition_versioning() is True
        async with persistence.transaction() as tx:
            assert await tx.supports_definition_versioning() is True
            assert await tx.ensure_definition_versioning_detected() is True
            await tx.insert_definition_if_absent(a_definition())
        assert await persistence.get_definition("orders", "v1") is not None

    async def test_a_definition_comes_back_as_it_was_inserted(self, persistence: Persistence) -> None:
        """`insert_definition_if_absent`, `get_definition`: the row that is stored now, exactly."""
        definition = a_definition(snapshot=ODD_JSON)
        assert await persistence.insert_definition_if_absent(definition) == definition
        stored = await persistence.get_definition("orders", "v1")
        assert stored is not None
        assert stored == definition
        assert exactly(stored.snapshot) == exactly(ODD_JSON)

    async def test_the_first_row_of_a_version_stays(self, persistence: Persistence) -> None:
        """`insert_definition_if_absent`: the first writer wins, and a row never changes."""
        first = a_definition(snapshot={"stages": ["price"]})
        second = replace(first, structure_hash="sha256:2", snapshot=None, created_at=LATER)
        await persistence.insert_definition_if_absent(first)
        assert await persistence.insert_definition_if_absent(second) == first
        assert await persistence.get_definition("orders", "v1") == first

    async def test_workflow_and_version_are_the_key(self, persistence: Persistence) -> None:
        """`DefinitionStore`: definitions by workflow id and version, letter by letter."""
        keys = [
            ("orders", "v1"),
            ("orders", "v2"),
            ("mail", "v1"),
            ("Orders", "v1"),
            ("orders", "V1"),
            ("orders", "v1 "),
        ]
        for number, (workflow_id, version) in enumerate(keys):
            definition = a_definition(workflow_id=workflow_id, version=version, snapshot=number)
            assert (await persistence.insert_definition_if_absent(definition)).snapshot == number
        found = [await persistence.get_definition(*key) for key in keys]
        assert [None if one is None else one.snapshot for one in found] == list(range(len(keys)))

    async def test_an_unknown_definition_is_none(self, persistence: Persistence) -> None:
        """`get_definition`: the stored definition, or None."""
        await persistence.insert_definition_if_absent(a_definition())
        assert await persistence.get_definition("orders", "v2") is None
        assert await persistence.get_definition("mail", "v1") is None

    @pytest.mark.parametrize("in_transactions", [False, True])
    async def test_of_many_writers_one_row_is_stored_and_told_to_all(
        self, persistence: Persistence, competitor: Persistence, scale: Scale, in_transactions: bool
    ) -> None:
        """`insert_definition_if_absent`: the first writer wins, and every caller is told the stored row."""

        async def insert(store: Persistence, number: int) -> object:
            definition = a_definition(snapshot=number)
            if not in_transactions:
                return (await store.insert_definition_if_absent(definition)).snapshot
            async with store.transaction() as tx:
                told = (await tx.insert_definition_if_absent(definition)).snapshot
                await asyncio.sleep(0)
                return told

        inserts = [insert(persistence if n % 2 else competitor, n) for n in range(scale.contenders)]
        told = await scale.soon(asyncio.gather(*inserts))
        stored = await persistence.get_definition("orders", "v1")
        assert stored is not None
        assert all(snapshot == stored.snapshot for snapshot in told)

    async def test_what_a_caller_changes_later_does_not_reach_the_store(
        self, persistence: Persistence
    ) -> None:
        """`Persistence`: values that go in or come out are the caller's own."""
        stages: list[Json] = ["price"]
        told = await persistence.insert_definition_if_absent(a_definition(snapshot=stages))
        stages.append("ship")
        assert isinstance(told.snapshot, list)
        told.snapshot.append("mail")
        stored = await persistence.get_definition("orders", "v1")
        assert stored is not None
        assert stored.snapshot == ["price"]

    async def test_a_definition_that_was_rolled_back_gives_way(self, persistence: Persistence) -> None:
        """`transaction`: calls are kept together or not at all; the key is free again."""

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await tx.insert_definition_if_absent(a_definition(snapshot="first"))
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert (
            await persistence.insert_definition_if_absent(a_definition(snapshot="second"))
        ).snapshot == "second"

    async def _counted(
        self,
        persistence: Persistence,
        *,
        workflow_id: str | None = None,
        definition_version: str | None = None,
        only_active: bool = False,
    ) -> list[VersionCounts]:
        counted = await persistence.count_runs_by_definition_version(
            workflow_id=workflow_id, definition_version=definition_version, only_active=only_active
        )
        return sorted(counted, key=lambda one: (one.workflow_id, one.definition_version or ""))

    def _runs(
        self, workflow_id: str, version: str | None, *statuses: Status, hours: int = 0
    ) -> list[RunRecord]:
        created_at = MOMENT + timedelta(hours=hours)
        return [
            a_run(status=status, workflow_id=workflow_id, definition_version=version, created_at=created_at)
            for status in statuses
        ]

    async def test_runs_are_counted_by_workflow_version_and_status(self, persistence: Persistence) -> None:
        """`count_runs_by_definition_version`: by workflow, version and status, with the oldest; None is a version."""
        assert await self._counted(persistence) == []
        runs = [
            *self._runs("orders", "v1", Status.COMPLETED, Status.COMPLETED, Status.PENDING, hours=2),
            *self._runs("orders", "v1", Status.CANCELLED, hours=1),
            *self._runs("orders", "v2", Status.RUNNING),
            *self._runs("orders", None, Status.FAILED, hours=3),
            *self._runs("mail", "v1", Status.PENDING, Status.RUNNING),
        ]
        for run in runs:
            await persistence.create_run(run)
        of_orders = [
            VersionCounts(
                workflow_id="orders",
                definition_version=None,
                counts={Status.FAILED: 1},
                oldest_created_at=MOMENT + timedelta(hours=3),
            ),
            VersionCounts(
                workflow_id="orders",
                definition_version="v1",
                counts={Status.COMPLETED: 2, Status.PENDING: 1, Status.CANCELLED: 1},
                oldest_created_at=MOMENT + timedelta(hours=1),
            ),
            VersionCounts(
                workflow_id="orders",
                definition_version="v2",
                counts={Status.RUNNING: 1},
                oldest_created_at=MOMENT,
            ),
        ]
        of_mail = VersionCounts(
            workflow_id="mail",
            definition_version="v1",
            counts={Status.PENDING: 1, Status.RUNNING: 1},
            oldest_created_at=MOMENT,
        )
        assert await self._counted(persistence) == [of_mail, *of_orders]
        assert await self._counted(persistence, workflow_id="orders") == of_orders
        assert await self._counted(persistence, definition_version="v1") == [of_mail, of_orders[1]]
        both = await self._counted(persistence, workflow_id="orders", definition_version="v2")
        assert both == [of_orders[2]]
        (left,) = await self._counted(
            persistence, definition_version="v1", workflow_id="orders", only_active=True
        )
        assert (left.counts, left.oldest_created_at) == ({Status.PENDING: 1}, MOMENT + timedelta(hours=2))
        active = await self._counted(persistence, only_active=True)
        assert active == [of_mail, left, of_orders[2]]
        assert await self._counted(persistence, workflow_id="Orders") == []
        assert await self._counted(persistence, definition_version="v") == []
        async with persistence.transaction() as tx:
            await tx.create_run(self._runs("mail", "v9", Status.PENDING)[0])
            assert len(await self._counted(tx)) == 5
