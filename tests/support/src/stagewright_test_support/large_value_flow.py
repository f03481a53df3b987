"""A workflow whose input, config, steps and outputs are all too large for a row, and what has to come out of it.

Workers load this file by its path; bodies note what they do in the file that the variable `EFFECTS` names. While there
is a file `held` beside that, the first stage doesn't end.
"""

import asyncio
import hashlib
import os
import random
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from stagewright import RetryPolicy, StageContext, define_workflow, stage

__all__ = ["config_of", "flow", "input_of", "output_of"]

_LARGE: Final = 90_000
"""Characters; a value of so many is not kept where the runs are."""

_ENDURING: Final = RetryPolicy(max_worker_losses=50)


class Options(BaseModel):
    """The config of the first stage, which its job carries."""

    text: str = ""


def input_of(number: int) -> dict[str, Any]:
    """The input of a run; another for each number."""
    return {"number": number, "text": _large(f"input {number}")}


def config_of(number: int) -> dict[str, Any]:
    """Its config."""
    return {"fetch": {"text": _large(f"config {number}")}}


def output_of(number: int) -> dict[str, Any]:
    """What has to come out of it."""
    texts = [_large(f"{what} {number}") for what in ("input", "config", "step", "left", "right", "artifact")]
    return {"number": number, "digest": _digest(*texts), "text": _large(f"output {number}")}


def _large(seed: str) -> str:
    return random.Random(seed).randbytes(_LARGE // 2).hex()


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _note(kind: str, run_id: str) -> None:
    with Path(os.environ["EFFECTS"]).open("a", encoding="utf-8") as effects:
        effects.write(f"{kind} {run_id}\n")


@stage("fetch", retry=_ENDURING)
async def fetch(ctx: StageContext[dict[str, Any], Options]) -> dict[str, Any]:
    """Read the input, and keep a step and an artifact."""
    _note("begin", ctx.run_id)
    number = ctx.input["number"]

    async def enlarged() -> str:
        _note("step", ctx.run_id)
        return _large(f"step {number}")

    text = await ctx.step.run("enlarge", enlarged, returns=str)
    await ctx.storage.save_bytes("artifact", _large(f"artifact {number}").encode())
    await asyncio.sleep(0.2)
    while Path(os.environ["EFFECTS"]).with_name("held").exists():  # noqa: ASYNC110 - another process removes it
        await asyncio.sleep(0.02)
    artifact = (await ctx.storage.load_bytes("artifact")).decode()
    return {"number": number, "texts": [ctx.input["text"], ctx.config.text, text], "artifact": artifact}


@stage("left", retry=_ENDURING)
async def left(ctx: StageContext[dict[str, Any]]) -> str:
    """Sleep before the output."""
    _note("begin", ctx.run_id)
    await ctx.step.sleep("nap", "300ms")
    return _large(f"left {ctx.input['number']}")


@stage("right", retry=_ENDURING)
async def right(ctx: StageContext[dict[str, Any]]) -> str:
    """Take a moment."""
    _note("begin", ctx.run_id)
    await asyncio.sleep(0.1)
    return _large(f"right {ctx.input['number']}")


@stage("join", retry=_ENDURING)
async def join(ctx: StageContext[dict[str, str]]) -> dict[str, Any]:
    """Put together what all others gave."""
    _note("begin", ctx.run_id)
    fetched = ctx.require(fetch)
    number = fetched["number"]
    whole = _digest(*fetched["texts"], ctx.input["left"], ctx.input["right"], fetched["artifact"])
    return {"number": number, "digest": whole, "text": _large(f"output {number}")}


flow = define_workflow("large", input=dict[str, Any]).pipe(fetch).parallel(left, right).pipe(join).build()
