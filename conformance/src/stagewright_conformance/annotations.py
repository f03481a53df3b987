"""Annotations: added once, found by every filter."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
import pytest_asyncio

from stagewright.annotations import Actor
from stagewright.json_values import Json
from stagewright.ports import Persistence
from stagewright.records import AnnotationQuery
from stagewright_conformance.samples import MOMENT, ODD_JSON, a_run, a_stage, an_annotation, exactly
from stagewright_conformance.suite import PersistenceSuite, Scale

__all__ = ["AnnotationSuite"]

_SECOND = timedelta(seconds=1)


class AnnotationSuite(PersistenceSuite):
    """`AnnotationStore`.

    Fixtures: those of `PersistenceSuite`.
    """

    @pytest_asyncio.fixture
    async def run_id(self, persistence: Persistence) -> str:
        """A run without annotations."""
        run = a_run()
        await persistence.create_run(run)
        return run.id

    async def _ids(
        self, persistence: Persistence, run_id: str, query: AnnotationQuery | None = None
    ) -> list[str]:
        return [row.id for row in await persistence.list_annotations(run_id, query or AnnotationQuery())]

    async def test_an_annotation_comes_back_as_it_was_appended(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`append_annotations`, `list_annotations`: every field is kept exactly."""
        stage = a_stage(run_id)
        await persistence.create_stage(stage)
        bare = an_annotation(run_id)
        full = replace(
            an_annotation(
                run_id, value=ODD_JSON, scope="order", scope_id="42", attempt=3, idempotency_key="once"
            ),
            actor=Actor(kind="model", id="m", version="2"),
            payload=ODD_JSON,
            stage_record_id=stage.id,
        )
        assert await persistence.append_annotations([bare, full]) == [bare.id, full.id]
        listed = await persistence.list_annotations(run_id, AnnotationQuery())
        assert listed == [bare, full]
        assert exactly(listed[1].value) == exactly(listed[1].payload) == exactly(ODD_JSON)

    async def test_what_a_caller_changes_later_does_not_reach_the_store(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`Persistence`: values that go in or come out are the caller's own."""
        value: list[Json] = [1]
        await persistence.append_annotations([an_annotation(run_id, value=value)])
        value.append(2)
        [row] = await persistence.list_annotations(run_id, AnnotationQuery())
        assert isinstance(row.value, list)
        row.value.append(3)
        assert [row.value for row in await persistence.list_annotations(run_id, AnnotationQuery())] == [[1]]

    async def test_nothing_is_appended_for_nothing(self, persistence: Persistence, run_id: str) -> None:
        """`append_annotations`: the ids of the rows that were written; none for none."""
        assert await persistence.append_annotations([]) == []
        assert await self._ids(persistence, run_id) == []

    async def test_annotations_are_listed_by_time_then_as_appended(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`list_annotations`: by `created_at`, then in the order they were appended, whatever their ids."""
        late = an_annotation(run_id, id=f"a-{run_id}", created_at=MOMENT + timedelta(microseconds=1))
        early = [an_annotation(run_id, id=f"{letter}-{run_id}") for letter in "zcx"]
        await persistence.append_annotations([late, early[0]])
        await persistence.append_annotations(early[1:])
        assert await self._ids(persistence, run_id) == [*(row.id for row in early), late.id]

    async def test_annotations_of_other_runs_are_not_listed(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`list_annotations`: the annotations of a run."""
        other = a_run()
        await persistence.create_run(other)
        await persistence.append_annotations([an_annotation(other.id)])
        assert await self._ids(persistence, run_id) == []

    @pytest.mark.guarantee("stores.annotations-once-per-key")
    async def test_a_repeated_idempotency_key_keeps_the_first_row(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`append_annotations`: a row whose run, key and idempotency key exist is skipped; the first stays."""
        first = an_annotation(run_id, value=1, idempotency_key="once")
        again = an_annotation(run_id, value=2, idempotency_key="once")
        same_batch = an_annotation(run_id, value=3, idempotency_key="twice")
        same_batch_again = an_annotation(run_id, value=4, idempotency_key="twice")
        other_key = an_annotation(run_id, key="decision.other", value=5, idempotency_key="once")
        other_letters = an_annotation(run_id, value=6, idempotency_key="Once")
        assert await persistence.append_annotations([first]) == [first.id]
        rows = [again, same_batch, same_batch_again, other_key, other_letters]
        assert await persistence.append_annotations(rows) == [same_batch.id, other_key.id, other_letters.id]
        assert [row.value for row in await persistence.list_annotations(run_id, AnnotationQuery())] == [
            1,
            3,
            5,
            6,
        ]

    async def test_the_same_idempotency_key_in_another_run_is_another_row(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`append_annotations`: run, key and idempotency key together are unique."""
        other = a_run()
        await persistence.create_run(other)
        rows = [an_annotation(each, idempotency_key="once") for each in (run_id, other.id)]
        assert await persistence.append_annotations(rows) == [row.id for row in rows]

    async def test_rows_without_idempotency_key_never_collide(
        self, persistence: Persistence, run_id: str
    ) -> None:
        """`append_annotations`: a None idempotency key never collides."""
        rows = [an_annotation(run_id) for _ in range(3)]
        assert await persistence.append_annotations(rows) == [row.id for row in rows]

    async def test_of_many_writers_with_one_idempotency_key_one_writes(
        self, persistence: Persistence, competitor: Persistence, run_id: str, scale: Scale
    ) -> None:
        """`append_annotations`: the answer names the rows that were written, also in a race."""
        rows = [an_annotation(run_id, value=n, idempotency_key="once") for n in range(scale.contenders)]
        stores = (persistence, competitor)
        appends = [stores[n % 2].append_annotations([row]) for n, row in enumerate(rows)]
        written = [ids for ids in await scale.soon(asyncio.gather(*appends)) if ids]
        assert [await self._ids(persistence, run_id)] == written

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (AnnotationQuery(), "abcdef"),
            (AnnotationQuery(key="cost.total"), "c"),
            (AnnotationQuery(key_prefix="decision"), "abe"),
            (AnnotationQuery(key_prefix="decision."), "ab"),
            (AnnotationQuery(key_prefix="d_cision"), ""),
            (AnnotationQuery(key_prefix="%"), ""),
            (AnnotationQuery(key_prefix="DECISION"), ""),
            (AnnotationQuery(key_prefix=""), "abcdef"),
            (AnnotationQuery(key_prefix="x_"), "d"),
            (AnnotationQuery(key="cost.total", key_prefix="decision"), "c"),
            (AnnotationQuery(scope="stage"), "bc"),
            (AnnotationQuery(scope="stage", scope_id="price"), "b"),
            (AnnotationQuery(scope_id="price"), "bd"),
            (AnnotationQuery(actor_kind="model"), "ac"),
            (AnnotationQuery(actor_kind="model", actor_id="m2"), "c"),
            (AnnotationQuery(attempt=2), "c"),
            (AnnotationQuery(attempt=0), "abdef"),
            (AnnotationQuery(since=MOMENT + 2 * _SECOND), "cdef"),
            (AnnotationQuery(until=MOMENT + _SECOND), "ab"),
            (AnnotationQuery(since=MOMENT + _SECOND, until=MOMENT + 2 * _SECOND, scope="stage"), "bc"),
            (AnnotationQuery(limit=2), "ab"),
            (AnnotationQuery(limit=1, scope="stage", scope_id="ship"), "c"),
        ],
    )
    async def test_a_query_finds_what_fits_all_its_filters(
        self, persistence: Persistence, run_id: str, query: AnnotationQuery, expected: str
    ) -> None:
        """`AnnotationQuery`: filters combined with AND; nothing in `key_prefix` is a wildcard."""
        model, other_model = Actor(kind="model", id="m1"), Actor(kind="model", id="m2")
        when = [MOMENT + n * _SECOND for n in range(6)]
        rows = [
            an_annotation(run_id, id="a", key="decision.outcome", created_at=when[0], actor=model),
            an_annotation(run_id, id="b", key="decision.reason", created_at=when[1], scope="stage", scope_id="price"),
            an_annotation(run_id, id="c", key="cost.total", created_at=when[2], scope="stage", scope_id="ship",
                          actor=other_model, attempt=2),
            an_annotation(run_id, id="d", key="x_y", created_at=when[3], scope_id="price"),
            an_annotation(run_id, id="e", key="decisions", created_at=when[4], actor=Actor(kind="user")),
            an_annotation(run_id, id="f", key="xzy", created_at=when[5]),
        ]  # fmt: skip
        await persistence.append_annotations(rows)
        assert await self._ids(persistence, run_id, query) == list(expected)
