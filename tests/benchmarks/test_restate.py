"""Restate is measured where its program and its SDK are; where they aren't, or don't start, its lines say so."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.figures import Figures, Request
from benchmarks.peers import restate_turns
from benchmarks.peers.restate_server import restate_version, serving_restate

IS_HERE = all(map(importlib.util.find_spec, ("restate", "hypercorn", "uvloop"))) and restate_version()


def put_program(prefix: Path, text: str) -> None:
    program = (
        prefix / "npm" / "node_modules" / "@restatedev" / "restate-server-of-this" / "bin" / "restate-server"
    )
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    program.chmod(0o755)


def test_without_its_program_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert restate_version() is None
    with pytest.raises(FileNotFoundError, match="restate-server isn't installed"), serving_restate(tmp_path):
        pass


def test_its_program_is_found_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    put_program(tmp_path, 'echo "restate-server 9.8.7 (made up)"')
    assert restate_version() == "9.8.7"


def test_a_server_that_ends_at_once_is_told_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    put_program(tmp_path, 'grep -c 127.0.0.1 "$3"; echo "no room for $1"; exit 3')
    with (
        pytest.raises(RuntimeError, match="it didn't start: no room for --no-logo"),
        serving_restate(tmp_path),
    ):
        pass
    assert (tmp_path / "restate.log").read_text(encoding="utf-8").startswith("2\n")


@pytest.mark.skipif(not IS_HERE, reason="Restate is installed by the session of the benchmark alone")
@pytest.mark.parametrize("turn", [restate_turns.three_steps, restate_turns.steps])
def test_it_takes_its_turns_and_leaves_no_data(tmp_path: Path, turn: Callable[[Request], Figures]) -> None:
    figures = turn(Request("", str(tmp_path), 3, 2))
    assert figures.done == 3
    assert not (tmp_path / "restate").exists()
