"""Odd texts and numbers come back as they went in, or are refused by name: the same on every database."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, StageResult, Status, define_workflow
from stagewright.annotations import Actor
from stagewright.commands import AnnotationInput, CancelRun, CreateRun
from stagewright.errors import (
    InvalidCommandError,
    InvalidInputError,
    StagewrightError,
    ValueNotSerializableError,
)
from stagewright.hosting import drive_run
from stagewright.records import AnnotationQuery, RunRecord
from stagewright_persistence_sqlalchemy import Database
from stagewright_test_support.backend_choice import stores

MakeKernel = Callable[..., Kernel]
CheckRun = Callable[..., Coroutine[Any, Any, RunRecord]]

# What fails here fails every time; a back-off would only make the test wait.
ONCE = RetryPolicy(max_attempts=1)
NUL, LONE = "a\x00b", "a\ud800b"
LITERAL = r"\u0000 and \ud800 \\ \x00"

pytestmark = pytest.mark.parametrize(
    "way", stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True
)
odd_texts = pytest.mark.parametrize("odd", [NUL, LONE], ids=["NUL", "lone surrogate"])


def nested(depth: int) -> Any:
    value: Any = "deep"
    for number in range(depth):
        value = [value] if number % 2 else {"in": value}
    return value


KEPT: dict[str, Any] = {
    "literal backslash-u": LITERAL,
    "large": 2**60,
    "larger": -(2**200),
    "floats and integers": [1.0, 1, -0.0, 0, 1e-7, 1e300, 5e-324, 0.1 + 0.2, 2.0**53],
    "constants": [None, True, False, "", [], {}, "null", "NULL"],
    "texts": [
        "\U0001f9ea\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "e\u0301",
        "\u00e9",
        "\ufeff",
        "\uffff",
        "\u2028",
        "'\"; --%s :x $1",
    ],
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x80",
    "keys": {"": 1, "b": 2, "a": 3, "\U0001f511": 4, LITERAL: 5, "a.b[0]": 6, ":x": 7, "%": 8},
    "deep": nested(120),
    "long": "x" * 300_000,
}


def exactly(value: Any) -> str:
    """A text that differs wherever types, signs or orders do."""
    return repr(value)


async def echo(ctx: StageContext[Any]) -> Any:
    ctx.log("info", str(ctx.input), value=ctx.input)
    ctx.annotate("kept", ctx.input, payload=ctx.input, emit_event=True)
    return StageResult(
        output=ctx.input, metrics={"value": ctx.input}, artifacts={"odd \U0001f9ea/\x01": ctx.input}
    )


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.guarantee("sql.odd-text-kept-or-refused")
async def test_a_value_comes_back_as_it_went_in(
    database: Database, make_kernel: MakeKernel, check_run: CheckRun, name: str
) -> None:
    value = KEPT[name]
    kernel = make_kernel(
        database,
        define_workflow("flow", input=Any).stage("s", echo, input=Any, output=Any, retry=ONCE).build(),
    )
    note = AnnotationInput(attributes={"given": value}, payload=value)
    created = await kernel.dispatch(CreateRun("flow", value, annotations=[note]))
    await drive_run(kernel, created.run_id)
    run = await check_run(kernel, created.run_id)
    (stage,) = await kernel.runs.stages(run.id)
    (line,) = (await kernel.runs.logs(run.id)).items
    notes = await kernel.ports.persistence.list_annotations(run.id, AnnotationQuery())
    told = [event.payload for event in await kernel.runs.events(run.id) if "value" in event.payload]
    ended = (await kernel.runs.events(run.id))[-1].payload
    found = [run.input, run.output, await kernel.runs.output_of(run.id, "s"), stage.metrics["value"]]
    found += [line.fields["value"], *[one.value for one in notes], *[one.payload for one in notes]]
    found += [told[0]["value"], ended["output"]]
    assert {exactly(one) for one in found} == {exactly(value)}
    assert len(notes) == 2
    # A line is kept up to 16 KiB.
    assert line.message == str(value) or (len(str(value)) > 16_384 and "(cut)" in line.message)


@odd_texts
@pytest.mark.parametrize(
    ("command", "path"),
    [
        (lambda odd: CreateRun("flow", odd), "$"),
        (lambda odd: CreateRun("flow", {"a": [odd]}), "$.a[0]"),
        (lambda odd: CreateRun("flow", {odd: 1}), "$"),
        (lambda odd: CreateRun("flow", 1, idempotency_key=odd), "$.idempotency_key"),
        (lambda odd: CreateRun(odd, 1), "$.workflow_id"),
        (lambda odd: CancelRun("r", reason=odd), "$.reason"),
        (CancelRun, "$.run_id"),
        (lambda odd: CreateRun("flow", 1, annotations=[AnnotationInput(attributes={odd: 1})]), "$.key"),
        (
            lambda odd: CreateRun("flow", 1, annotations=[AnnotationInput(attributes={"k": {"a": odd}})]),
            "$.a",
        ),
        (
            lambda odd: CreateRun("flow", 1, annotations=[AnnotationInput(attributes={"k": 1}, payload=odd)]),
            "$",
        ),
        (
            lambda odd: CreateRun(
                "flow",
                1,
                annotations=[AnnotationInput(attributes={"k": 1}, actor=Actor(kind="user", id=odd))],
            ),
            "$.actor.id",
        ),
    ],
    ids=[
        *("input", "member", "input key", "idempotency key", "workflow id", "reason", "run id"),
        *("annotation key", "annotation value", "annotation payload", "annotation actor"),
    ],
)
@pytest.mark.guarantee("sql.odd-text-kept-or-refused")
async def test_what_a_command_can_not_keep_it_refuses_by_name(
    database: Database, make_kernel: MakeKernel, command: Callable[[str], Any], path: str, odd: str
) -> None:
    kernel = make_kernel(
        database,
        define_workflow("flow", input=Any).stage("s", echo, input=Any, output=Any, retry=ONCE).build(),
    )
    with pytest.raises(StagewrightError) as refused:
        await kernel.dispatch(command(odd))
    assert isinstance(refused.value, InvalidCommandError | InvalidInputError | ValueNotSerializableError)
    paths = (
        [refused.value.path]
        if isinstance(refused.value, ValueNotSerializableError)
        else [problem.path for problem in refused.value.problems]
    )
    assert any(one == path or (path == "$" and one.startswith("$")) for one in paths), paths
    assert (await kernel.runs.list()).items == ()


async def _output(ctx: StageContext[Any], odd: str) -> Any:
    return {"a": odd}


async def _output_key(ctx: StageContext[Any], odd: str) -> Any:
    return {odd: 1}


async def _metrics(ctx: StageContext[Any], odd: str) -> Any:
    return StageResult(output=1, metrics={"m": odd})


async def _artifact(ctx: StageContext[Any], odd: str) -> Any:
    return StageResult(output=1, artifacts={"a": odd})


async def _annotation(ctx: StageContext[Any], odd: str) -> Any:
    ctx.annotate("k", {"a": odd})


async def _annotation_key(ctx: StageContext[Any], odd: str) -> Any:
    ctx.annotate(odd, 1)


async def _storage(ctx: StageContext[Any], odd: str) -> Any:
    await ctx.storage.save("k", {"a": odd})


async def _storage_key(ctx: StageContext[Any], odd: str) -> Any:
    await ctx.storage.save(odd, 1)


@odd_texts
@pytest.mark.parametrize(
    "body",
    [_output, _output_key, _metrics, _artifact, _annotation, _annotation_key, _storage, _storage_key],
    ids=lambda body: str(body.__name__),
)
async def test_what_a_body_leaves_and_can_not_be_kept_fails_its_stage(
    database: Database, make_kernel: MakeKernel, check_run: CheckRun, body: Any, odd: str
) -> None:
    async def run_body(ctx: StageContext[Any]) -> Any:
        return await body(ctx, odd)

    flow = define_workflow("flow", input=Any).stage("s", run_body, input=Any, output=Any, retry=ONCE)
    kernel = make_kernel(database, flow.build())
    created = await kernel.dispatch(CreateRun("flow", 1))
    await drive_run(kernel, created.run_id, timeout="20s")
    run = await check_run(kernel, created.run_id, (Status.FAILED,))
    assert run.error is not None
    word = "NUL" if odd == NUL else "surrogate"
    assert word in run.error.message or "control" in run.error.message, run.error


@odd_texts
async def test_what_a_body_says_is_kept_readable_and_never_strands_its_run(
    database: Database, make_kernel: MakeKernel, check_run: CheckRun, odd: str
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        ctx.log("info", odd, field=1)
        ctx.progress(50, odd)
        raise ValueError(odd)

    flow = define_workflow("flow", input=Any).stage("s", body, input=Any, output=Any, retry=ONCE)
    kernel = make_kernel(database, flow.build())
    created = await kernel.dispatch(CreateRun("flow", 1))
    await drive_run(kernel, created.run_id, timeout="20s")
    run = await check_run(kernel, created.run_id, (Status.FAILED,))
    assert run.error is not None
    assert "a" in run.error.message
    for line in (await kernel.runs.logs(run.id)).items:
        assert odd not in line.message


async def test_the_six_characters_of_an_escape_stay_text(
    database: Database, make_kernel: MakeKernel, check_run: CheckRun
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        ctx.log("info", LITERAL, field=LITERAL)
        raise ValueError(LITERAL)

    flow = define_workflow("flow", input=Any).stage("s", body, input=Any, output=Any, retry=ONCE)
    kernel = make_kernel(database, flow.build())
    created = await kernel.dispatch(CreateRun("flow", {LITERAL: LITERAL}, idempotency_key=LITERAL))
    again = await kernel.dispatch(CreateRun("flow", {LITERAL: LITERAL}, idempotency_key=LITERAL))
    assert again == created
    await drive_run(kernel, created.run_id, timeout="20s")
    run = await check_run(kernel, created.run_id, (Status.FAILED,))
    assert run.input == {LITERAL: LITERAL}
    assert run.error is not None
    assert LITERAL in run.error.message
    messages = [line.message for line in (await kernel.runs.logs(run.id)).items]
    assert LITERAL in messages
