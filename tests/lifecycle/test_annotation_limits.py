"""Annotations that no store could keep, refused alike by every way in."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow, define_workflow
from stagewright.annotations import Actor
from stagewright.commands import AnnotationInput, CreateRun
from stagewright.errors import InvalidCommandError, ValueNotSerializableError
from stagewright.hosting import drive_run

OpenStore = Callable[..., Awaitable[Kernel]]
LONGEST = "\N{GRINNING FACE}" * 255

MISTAKES: Mapping[str, tuple[dict[str, Any], str]] = {
    "long-key": ({"attributes": {"k" * 3_000: 1}}, "a key has at most 255 characters, and this has 3,000"),
    "key-one-too-long": ({"attributes": {"fine": 1, LONGEST + "x": 1}}, "at most 255 characters"),
    "dict-for-an-actor": ({"actor": {"kind": "user"}}, r"\$\.actor: must be an Actor, such as Actor\(kind"),
    "name-for-an-actor": ({"actor": "ada"}, r"\$\.actor"),
    "kind-is-a-number": ({"actor": Actor(kind=5)}, r"\$\.actor\.kind"),  # type: ignore[arg-type]  # on purpose
    "id-is-a-number": ({"actor": Actor(kind="user", id=5)}, r"\$\.actor\.id"),  # type: ignore[arg-type]  # on purpose
    "no-attributes": ({"attributes": None}, r"\$\.attributes"),
    "list-of-attributes": ({"attributes": ["k"]}, r"\$\.attributes"),
    "key-is-a-number": ({"attributes": {3: 1}}, r"\$\.attributes"),
    "event-in-words": ({"emit_event": "no"}, r"\$\.emit_event"),
}
WRONG_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"idempotency_key": key}, r"\$\.idempotency_key") for key in ("i" * 3_000, "", 5)
]


def flow_of(body: Callable[[StageContext[Any]], Awaitable[object]]) -> Workflow:
    return define_workflow("said", input=Any).stage("s", body, input=Any, output=Any).build()


async def silent(ctx: StageContext[Any]) -> None:
    return None


@pytest.mark.guarantee("kernel.annotations-fit-every-store")
async def test_a_body_is_told_the_field_at_the_call_and_fails_once(open_store: OpenStore) -> None:
    executions = 0

    async def body(ctx: StageContext[Any]) -> None:
        nonlocal executions
        executions += 1
        for given, named in MISTAKES.values():
            said: Any = {"attributes": {"k": 1}, **given}
            with pytest.raises(ValueNotSerializableError, match=named):
                ctx.annotate_many(said.pop("attributes"), **said)
        ctx.annotate("k" * 3_000, 1)

    kernel = await open_store(flow_of(body))
    created = await kernel.dispatch(CreateRun("said"))
    run = await drive_run(kernel, created.run_id)
    assert run.error is not None
    assert (run.status, run.error.type, executions) == (Status.FAILED, "ValueNotSerializableError", 1)
    assert "has at most 255 characters" in run.error.message
    assert await kernel.annotations.list(run.id) == []


@pytest.mark.guarantee("kernel.annotations-fit-every-store")
async def test_whoever_attaches_it_is_told_the_field(open_store: OpenStore) -> None:
    kernel = await open_store(flow_of(silent))
    run_id = (await kernel.dispatch(CreateRun("said"))).run_id
    too_long = [({field: "x" * 256}, rf"\$\.{field}") for field in ("scope", "scope_id", "idempotency_key")]
    # A dict is read as the actor that it spells out.
    mistakes = [mistake for name, mistake in MISTAKES.items() if name != "dict-for-an-actor"]
    for given, named in mistakes + too_long + WRONG_KEYS:
        said: Any = {"attributes": {"k": 1}, **given}
        with pytest.raises(InvalidCommandError, match=named):
            await kernel.annotations.attach(run_id, said.pop("attributes"), **said)
    assert await kernel.annotations.list(run_id) == []


@pytest.mark.guarantee("kernel.annotations-fit-every-store")
async def test_no_run_is_created_with_it(open_store: OpenStore) -> None:
    kernel = await open_store(flow_of(silent))
    for given, named in [*MISTAKES.values(), *WRONG_KEYS]:
        for key in (None, "once"):
            said: Any = {"attributes": {"k": 1}, **given}
            annotation = AnnotationInput(**said)
            with pytest.raises(InvalidCommandError, match=named):
                await kernel.dispatch(CreateRun("said", annotations=[annotation], idempotency_key=key))
    assert (await kernel.runs.list()).items == ()


@pytest.mark.guarantee("kernel.annotations-fit-every-store")
async def test_the_longest_keys_are_kept(open_store: OpenStore) -> None:
    async def body(ctx: StageContext[Any]) -> None:
        ctx.annotate(LONGEST, "inside")

    kernel = await open_store(flow_of(body))
    first = AnnotationInput(attributes={LONGEST: "created"}, idempotency_key=LONGEST)
    run_id = (await kernel.dispatch(CreateRun("said", annotations=[first]))).run_id
    await kernel.annotations.attach(run_id, {LONGEST: "attached"}, idempotency_key=LONGEST[1:])
    assert (await drive_run(kernel, run_id)).status is Status.COMPLETED
    rows = await kernel.annotations.list(run_id, key=LONGEST)
    assert sorted(str(row.value) for row in rows) == ["attached", "created", "inside"]
