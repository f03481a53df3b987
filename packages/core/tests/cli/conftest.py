import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagewright.cli.application import run_application

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def stagewright(tmp_path: Path) -> Run:
    """Runs the command in a process of its own, in a folder of its own, its output in pipes."""

    def run(
        *arguments: str | Path, environment: Mapping[str, str] | None = None, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STAGEWRIGHT_")}
        return subprocess.run(
            [sys.executable, "-m", "stagewright.cli", *map(str, arguments)],
            cwd=tmp_path,
            env={**inherited, **(environment or {})},
            input=input,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

    return run


@dataclass(frozen=True)
class Answer:
    """What a command line answered, with the names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Answer]]:
    """Runs the command in this process, for what doesn't need one of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def call(*arguments: str) -> Answer:
        code = run_application(arguments)
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    yield call
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def on_terminal(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs the command on a terminal so many columns wide: its exit code, and what was shown."""
    if sys.platform == "win32":
        pytest.skip("there is no pty")
    import pty

    def run(*arguments: str, columns: int) -> tuple[int, str]:
        leader, follower = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "stagewright.cli", *arguments],
            cwd=tmp_path,
            env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns)},
            stdin=follower,
            stdout=follower,
            stderr=follower,
        ) as process:
            os.close(follower)
            shown = bytearray()
            while True:
                try:
                    piece = os.read(leader, 4096)
                except OSError:
                    break
                if not piece:
                    break
                shown += piece
        os.close(leader)
        return process.returncode, shown.decode()

    return run


WORKFLOWS = """
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel
from stagewright import (
    BlockingStageContext, NonRetryableError, StageContext, WorkflowRegistry, define_workflow, stage,
)


class Order(BaseModel):
    name: str
    count: int = 1
    note: str | None = None
    tags: list[str] = []
    size: Literal["s", "m"] = "s"


class PriceConfig(BaseModel):
    currency: str = "EUR"
    digits: int = 2


class Priced(BaseModel):
    label: str
    order: Order


@stage("price")
async def price(ctx: StageContext[Order, PriceConfig]) -> Priced:
    ctx.progress(50, "half")
    if ctx.input.name == "bad":
        raise NonRetryableError("nobody sells bad")
    return Priced(label=f"{ctx.config.digits} {ctx.config.currency}", order=ctx.input)


@stage("write")
def write(ctx: BlockingStageContext[Priced]) -> dict[str, str]:
    Path("label.txt").write_text(ctx.input.label)
    return {"label": ctx.input.label, "file": str(Path("label.txt").resolve())}


@stage("wait")
def wait(ctx: BlockingStageContext[Order]) -> None:
    Path("waiting").touch()
    time.sleep(30)


@stage("one")
async def one(ctx: StageContext[None]) -> int:
    return 1


orders = define_workflow("orders", input=Order).pipe(price).build()
labels = define_workflow("labels", input=Order).pipe(price).pipe(write).build()
waits = define_workflow("waits", input=Order).pipe(wait).build()
idle = define_workflow("idle", input=None).pipe(one).build()
several = [orders, labels]
registry = WorkflowRegistry(several)
builder = define_workflow("orders", input=Order).pipe(price)
nothing = []
number = 3


class Finder:
    def get(self, id):
        return orders if id == "orders" else None


finder = Finder()
"""


@pytest.fixture
def workflows(tmp_path: Path) -> Path:
    """A file with all kinds of targets."""
    path = tmp_path / "flows.py"
    path.write_text(WORKFLOWS, encoding="utf-8")
    return path
