"""Which commands the scripts and the sources send: none that looks through all keys of a server."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

import stagewright_transport_redis

SOURCES: Final = Path(stagewright_transport_redis.__file__).parent
SCRIPTS: Final = sorted((SOURCES / "scripts").glob("*.lua"))
MODULES: Final = sorted(SOURCES.rglob("*.py"))
WALKS: Final = {"keys", "scan", "scan_iter"}
"""The commands that read every key of a database to find some, and how the client calls them."""

MAY_WALK: Final = {"emptying.py"}
"""Whoever has a namespace emptied waits for that."""

CALL: Final = re.compile(r"redis\.p?call\b\s*(?:\(\s*(['\"])(\w+)\1)?")


def called_by_script(text: str) -> set[str]:
    """The commands in a script, in lower case; a call that doesn't name its command is ""."""
    without_comments = re.sub(r"--.*", "", text)
    return {match[2].lower() if match[2] else "" for match in CALL.finditer(without_comments)}


def called_by_module(text: str) -> set[str]:
    """The attributes that a module names, methods among them, and the first words of its texts, in lower case."""
    names = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value.strip().partition(" ")[0].lower())
    return names


@pytest.mark.guarantee("redis.keys-are-not-looked-through")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_looks_through_all_keys(script: Path) -> None:
    called = called_by_script(script.read_text(encoding="utf-8"))
    assert "" not in called, "a command whose name stands nowhere can't be looked at"
    assert called.isdisjoint(WALKS)


@pytest.mark.guarantee("redis.keys-are-not-looked-through")
@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_no_module_looks_through_all_keys_but_the_one_that_empties(module: Path) -> None:
    called = called_by_module(module.read_text(encoding="utf-8")) & WALKS
    assert bool(called) is (module.name in MAY_WALK)


@pytest.mark.parametrize(
    "text", ["redis.call('KEYS', '*')", 'redis.pcall( "scan", 0)', "local f = redis.call(\n'SCAN', '0')"]
)
def test_a_script_that_did_would_be_found(text: str) -> None:
    assert called_by_script(f"local x = KEYS[1]\n{text}") & WALKS


def test_a_call_without_a_name_and_a_comment_are_told_apart() -> None:
    assert called_by_script("redis.call(name, KEYS[1]) -- not redis.call('SCAN')") == {""}
    assert called_by_script("local call = redis.call") == {""}


@pytest.mark.parametrize(
    "text", ["c.scan_iter(match='x')", "f = c.keys", "c.execute_command('KEYS *')", "c.call('scan', 0)"]
)
def test_a_module_that_did_would_be_found(text: str) -> None:
    assert called_by_module(text) & WALKS
