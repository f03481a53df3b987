"""No control character of a workflow's reaches the terminal."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stagewright.cli.printable import one_line, printable

Call = Callable[..., Any]

FLOWS = r"""
import sys
from pathlib import Path
from typing import Any
from stagewright import NonRetryableError, StageContext, define_workflow, stage

ODD = "\x1b[2J\x07\x9b31m\x7f\u2028\rforged\nprice: completed"


@stage("odd", name=ODD)
async def odd(ctx: StageContext[dict[str, Any]]) -> dict[str, str]:
    ctx.progress(50, ODD)
    ctx.log("WARNING", ODD)
    if ctx.input.get("fail"):
        raise NonRetryableError(ODD)
    if ctx.input.get("exit") is not None:
        sys.exit(ctx.input["exit"])
    path = Path("named\x1b[31m.txt").resolve()
    path.write_text("x")
    return {"text": ODD, ODD: str(path), "long": "/" + "x" * 3000}


@stage("hidden", name=ODD)
async def hidden(ctx: StageContext[dict[str, Any]]) -> int:
    return 1


flow = define_workflow("flow", input=dict[str, Any], name=ODD).pipe(odd).build()
"""

ODD = "\x1b[2J\x07\x9b31m\x7f\u2028\rforged\nprice: completed"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / "odd.py"
    path.write_text(FLOWS, encoding="utf-8")
    return path


def test_control_characters_become_escapes() -> None:
    assert printable("a\tb\nc\x1b[0m\x9b\u2028\r") == "a\tb\nc\\x1b[0m\\x9b\\u2028\\x0d"
    assert printable("a\r\nb é 鍵 🔑") == "a\nb é 鍵 🔑"
    assert one_line("\na  \r\n  b\rc\td\n") == "a b c\td"


@pytest.mark.guarantee("cli.control-characters-escaped")
@pytest.mark.parametrize("outcome", ["{}", '{"fail": true}'])
def test_a_run_shows_no_control_character(called: Call, odd: Path, outcome: str) -> None:
    done = called("run", "odd.py:flow", "--input-json", outcome)
    assert CONTROL.findall(done.stdout + done.stderr) == []
    assert "odd: 50% \\x1b[2J\\x07" in done.stdout
    assert "price: completed" not in done.stdout.splitlines()
    if outcome == "{}":
        assert done.returncode == 0
        assert "named\\x1b[31m.txt (1 bytes)" in done.stdout
    else:
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1


@pytest.mark.guarantee("cli.control-characters-escaped")
def test_a_log_line_shows_no_control_character(stagewright: Call, odd: Path) -> None:
    done = stagewright("run", "odd.py:flow", "-q", "--input-json", "{}")
    assert CONTROL.findall(done.stderr) == []
    assert "\\x1b[2J\\x07\\x9b31m" in done.stderr


def test_the_output_alone_stays_the_same_json(called: Call, odd: Path) -> None:
    done = called("run", "odd.py:flow", "-q", "--input-json", "{}")
    assert CONTROL.findall(done.stdout) == []
    assert json.loads(done.stdout)["text"] == ODD


@pytest.mark.guarantee("cli.control-characters-escaped")
def test_a_diagram_and_an_error_show_no_control_character(called: Call, odd: Path) -> None:
    for arguments in (
        ["diagram", "odd.py:flow"],
        ["run", "odd.py:\x1b[2J"],
        ["run", "odd.py:flow", "\x1b[2J"],
    ):
        done = called(*arguments)
        assert CONTROL.findall(done.stdout + done.stderr) == []
        assert done.stdout + done.stderr


@pytest.mark.guarantee("cli.never-zero-unless-completed")
@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_a_body_that_exits_is_a_failure_with_code_1(
    called: Call, odd: Path, code: int, quiet: list[str]
) -> None:
    done = called("run", "odd.py:flow", *quiet, "--input-json", f'{{"exit": {code}}}')
    assert done.returncode == 1
    assert "Exit" in done.stderr or "exit" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.guarantee("cli.never-zero-unless-completed")
def test_an_exit_outside_of_a_body_is_a_failure_with_code_1(
    called: Call, workflows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exits(*arguments: object, **options: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr("stagewright.cli.run_command.drive_run", exits)
    done = called("run", "flows.py:orders", "--input", "name=tea")
    assert done.returncode == 1
    assert re.search(
        r"stagewright: something called sys\.exit\(0\); run \S+ is gone with this process\n", done.stderr
    )


@pytest.mark.guarantee("cli.control-characters-escaped")
def test_a_live_view_shows_no_escape_of_a_body(
    odd: Path, on_terminal: Callable[..., tuple[int, str]]
) -> None:
    code, text = on_terminal("run", "odd.py:flow", "--input-json", "{}", columns=200)
    assert code == 0, text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text
    assert "\\x1b[2J" in text
