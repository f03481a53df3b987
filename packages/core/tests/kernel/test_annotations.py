"""`kernel.annotations`: what is said of a run from outside, and how it is found again."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.annotations import Actor
from stagewright.commands import AnnotationInput, CancelRun, CreateRun
from stagewright.conventions import Approval, Decision
from stagewright.errors import (
    InvalidCommandError,
    RunNotFoundError,
    StaleVersionError,
    ValueNotSerializableError,
)
from stagewright.records import DequeuedJob
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[Any]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]


async def annotating(ctx: StageContext[Any]) -> Any:
    ctx.annotate("said.inside", ctx.attempt, actor=Actor(kind="model", id="m1"))


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(annotating))


@pytest.fixture
async def run_id(kernel: Kernel) -> str:
    return (await kernel.dispatch(CreateRun("flow"))).run_id


@pytest.mark.guarantee("kernel.annotations-are-attached-together")
async def test_each_attribute_with_a_value_becomes_a_row(
    kernel: Kernel, run_id: str, clock: FakeClock, told: Told
) -> None:
    clock.advance("1h")
    actor = Actor(kind="user", id="u7", version="2")
    await kernel.annotations.attach(
        run_id,
        {Decision.OUTCOME: {"ok": True}, Decision.RATIONALE: None, "note": "by hand"},
        actor=actor,
        scope="stage",
        scope_id="s1",
        payload=[1.0],
    )
    rows = await kernel.annotations.list(run_id)
    assert [(row.key, row.value) for row in rows] == [("decision.outcome", {"ok": True}), ("note", "by hand")]
    for row in rows:
        assert (row.run_id, row.stage_record_id, row.attempt, row.created_at) == (
            run_id,
            None,
            0,
            clock.now(),
        )
        assert (row.scope, row.scope_id, row.actor, row.payload) == ("stage", "s1", actor, [1.0])
    assert await told(kernel, run_id) == ["workflow:created"]


async def test_unless_told_otherwise_an_annotation_is_about_the_run(kernel: Kernel, run_id: str) -> None:
    await kernel.annotations.attach(run_id, {Approval.APPROVERS: ["u1"]})
    (row,) = await kernel.annotations.list(run_id)
    assert (row.scope, row.scope_id, row.actor, row.payload, row.idempotency_key) == (
        "run",
        None,
        None,
        None,
        None,
    )


async def test_events_are_told_of_rows_that_were_written_when_asked(
    kernel: Kernel, run_id: str, told: Told
) -> None:
    for value in ("first", "second"):
        await kernel.annotations.attach(
            run_id, {"a": value, "b": None}, idempotency_key="once", emit_event=True
        )
    assert await told(kernel, run_id) == ["workflow:created", "annotation:created"]
    event = (await kernel.runs.events(run_id))[1]
    assert (event.payload["key"], event.payload["value"], event.causation_id) == ("a", "first", "once")
    assert [row.value for row in await kernel.annotations.list(run_id)] == ["first"]


async def test_values_that_are_all_dropped_write_nothing(
    kernel: Kernel, run_id: str, contents: Callable[[], dict[str, object]]
) -> None:
    before = contents()
    await kernel.annotations.attach(run_id, {"a": None}, emit_event=True)
    await kernel.annotations.attach(run_id, {})
    assert contents() == before


async def test_a_run_that_has_ended_can_be_annotated(kernel: Kernel, run_id: str) -> None:
    await kernel.dispatch(CancelRun(run_id))
    await kernel.annotations.attach(run_id, {"post.mortem": "cancelled by mistake"}, emit_event=True)
    assert [row.key for row in await kernel.annotations.list(run_id)] == ["post.mortem"]
    assert [event.sequence for event in await kernel.runs.events(run_id)] == [1, 2, 3]


async def test_an_unknown_run_is_refused_and_has_no_annotations(kernel: Kernel) -> None:
    with pytest.raises(RunNotFoundError, match="nothing-here"):
        await kernel.annotations.attach("nothing-here", {"a": 1})
    assert await kernel.annotations.list("nothing-here") == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"scope": ""}, r"\$\.scope"),
        ({"scope": None}, r"\$\.scope"),
        ({"scope_id": "nul\x00"}, r"\$\.scope_id"),
        ({"idempotency_key": ""}, r"\$\.idempotency_key"),
        ({"idempotency_key": 5}, r"\$\.idempotency_key"),
        ({"attributes": ["a"]}, r"\$\.attributes"),
        ({"attributes": {3: 1}}, r"\$\.attributes"),
        ({"emit_event": "yes"}, r"\$\.emit_event"),
        ({"actor": "me"}, r"\$\.actor"),
        ({"attributes": {"": 1}}, "isn't empty"),
        ({"attributes": {"a": float("nan")}}, "'a'"),
        ({"attributes": {"a": {"deep": {1, 2}}}}, r"\$\.deep"),
        ({"attributes": {"good": 1, "bad\x00": 1}}, "NUL"),
        ({"payload": object()}, "payload"),
        ({"actor": Actor(kind="user", id="\ud800")}, r"actor\.id"),
    ],
)
async def test_what_can_not_be_attached_is_named_and_nothing_written(
    kernel: Kernel,
    run_id: str,
    contents: Callable[[], dict[str, object]],
    given: dict[str, Any],
    named: str,
) -> None:
    before = contents()
    attributes = given.pop("attributes", {"a": 1})
    with pytest.raises((InvalidCommandError, ValueNotSerializableError), match=named):
        await kernel.annotations.attach(run_id, attributes, **given)
    assert contents() == before


async def test_a_store_that_fails_keeps_nothing_of_an_attachment(
    kernel: Kernel,
    run_id: str,
    contents: Callable[[], dict[str, object]],
    fail_at: Callable[..., None],
) -> None:
    before = contents()
    fail_at("append_outbox_events", times=9, error=StaleVersionError("run", run_id, 1, 2))
    with pytest.raises(StaleVersionError):
        await kernel.annotations.attach(run_id, {"a": 1, "b": 2}, emit_event=True)
    assert contents() == before


async def test_of_many_who_attach_under_one_key_one_is_written_and_told(
    kernel: Kernel, run_id: str, told: Told
) -> None:
    attachments = [
        kernel.annotations.attach(run_id, {"a": number}, idempotency_key="once", emit_event=True)
        for number in range(8)
    ]
    await asyncio.gather(*attachments)
    assert len(await kernel.annotations.list(run_id)) == 1
    assert (await told(kernel, run_id)).count("annotation:created") == 1


@pytest.fixture
async def varied(
    kernel: Kernel, clock: FakeClock, take_job: TakeJob, execute: Execute, start_run: StartRun
) -> str:
    """A run annotated at its creation, from outside and by its stage, an hour apart."""
    run_id = await start_run(kernel, annotations=[AnnotationInput(attributes={"trigger.source": "api"})])
    clock.advance("1h")
    await kernel.annotations.attach(
        run_id, {"a_b": 1, "aXb": 2, "A_b": 3}, actor=Actor(kind="user", id="u1"), scope="order", scope_id="9"
    )
    clock.advance("1h")
    await execute(kernel, await take_job(kernel))
    return run_id


ALL = ["trigger.source", "a_b", "aXb", "A_b", "said.inside"]


@pytest.mark.guarantee("kernel.annotations-are-found-by-every-filter")
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ALL),
        ({"key": "a_b"}, ["a_b"]),
        ({"key_prefix": "a_"}, ["a_b"]),
        ({"key_prefix": "a"}, ["a_b", "aXb"]),
        ({"key_prefix": "%"}, []),
        ({"key": "aXb", "key_prefix": "trigger"}, ["aXb"]),
        ({"scope": "run"}, ["trigger.source"]),
        ({"scope": "stage"}, ["said.inside"]),
        ({"scope_id": "9"}, ["a_b", "aXb", "A_b"]),
        ({"scope": "stage", "scope_id": "s1"}, ["said.inside"]),
        ({"scope": "stage", "scope_id": "9"}, []),
        ({"actor_id": "u1"}, ["a_b", "aXb", "A_b"]),
        ({"actor_kind": "model"}, ["said.inside"]),
        ({"actor_kind": "model", "actor_id": "u1"}, []),
        ({"attempt": 0}, ALL[:4]),
        ({"attempt": 1}, ["said.inside"]),
        ({"limit": 2}, ALL[:2]),
        ({"limit": 1, "key_prefix": "a"}, ["a_b"]),
    ],
)
async def test_a_filter_finds_what_fits_it(
    kernel: Kernel, varied: str, filters: dict[str, Any], found: list[str]
) -> None:
    assert [row.key for row in await kernel.annotations.list(varied, **filters)] == found


async def test_times_bound_a_listing_on_both_sides_and_belong_to_it(
    kernel: Kernel, hours: Callable[[float], datetime], varied: str
) -> None:
    async def listed(**filters: Any) -> list[str]:
        return [row.key for row in await kernel.annotations.list(varied, **filters)]

    assert await listed(since=hours(1)) == ALL[1:]
    assert await listed(until=hours(1)) == ALL[:4]
    assert await listed(since=hours(1), until=hours(1)) == ALL[1:4]
    assert await listed(since=hours(0.5), until=hours(0.9)) == []


async def test_a_typed_key_filters_like_its_name(kernel: Kernel, run_id: str) -> None:
    await kernel.annotations.attach(run_id, {Decision.OUTCOME: "yes", Decision.CONFIDENCE: 0.5})
    (row,) = await kernel.annotations.list(run_id, key=Decision.CONFIDENCE)
    assert row.value == 0.5


async def test_a_thousand_are_listed_unless_told_otherwise(kernel: Kernel, run_id: str) -> None:
    await kernel.annotations.attach(run_id, {f"k{number}": number for number in range(1_001)})
    assert len(await kernel.annotations.list(run_id)) == 1_000
    assert len(await kernel.annotations.list(run_id, limit=2_000)) == 1_001


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({"limit": 0}, r"\$\.limit"),
        ({"limit": True}, r"\$\.limit"),
        ({"since": datetime(2025, 1, 1)}, r"\$\.since"),  # noqa: DTZ001 - on purpose
        ({"until": datetime(2025, 1, 1)}, r"\$\.until"),  # noqa: DTZ001 - on purpose
        ({"key": "nul\x00"}, r"\$\.key"),
        ({"attempt": "1"}, r"\$\.attempt"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_named(
    kernel: Kernel, run_id: str, filters: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidCommandError, match=named):
        await kernel.annotations.list(run_id, **filters)
