"""Definitions: the first writer's row stays."""

import asyncio
from dataclasses import replace

import pytest

from stagewright.json_values import Json
from stagewright.ports import Persistence
from stagewright_conformance.samples import LATER, ODD_JSON, a_definition, exactly
from stagewright_conformance.suite import PersistenceSuite, Scale

__all__ = ["DefinitionSuite"]


class DefinitionSuite(PersistenceSuite):
    """`DefinitionStore`.

    Fixtures: those of `PersistenceSuite`.
    """

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
