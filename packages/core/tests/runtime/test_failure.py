"""Describing exceptions: everything that helps, nothing that a store can't hold, never an exception of its own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.json_values import text_problem
from stagewright.runtime.failure import describe_exception, storable


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Text(str):
    __slots__ = ()


class OddlyNotedError(Exception):
    __notes__: Any = (1, "a note", None)


class SecretlyNotedError(Exception):
    def __getattribute__(self, name: str) -> Any:
        if name == "__notes__":
            raise RuntimeError("no notes")
        return super().__getattribute__(name)


class NumberedError(Exception):
    __notes__: Any = 5


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@given(st.text(st.characters(), max_size=300), st.integers(60, 400))
def test_any_text_becomes_storable_within_its_limit(text: str, longest: int) -> None:
    stored = storable(text, longest)
    assert text_problem(stored) is None
    assert len(stored.encode()) <= longest


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=100))
def test_a_storable_text_stays_as_it_is(text: str) -> None:
    assert storable(text, 1_000) == text


def test_of_a_long_text_beginning_and_end_are_kept() -> None:
    stored = storable("a" * 10_000 + "z" * 10_000, 1_000)
    assert stored.startswith("aaa")
    assert stored.endswith("zzz")
    assert "(cut)" in stored


def test_an_exception_is_described_with_class_message_and_traceback() -> None:
    described = describe_exception(raised(LookupError("where?")), code="SOME_CODE", stage_id="s")
    assert (described.code, described.type, described.message, described.stage_id) == (
        "SOME_CODE",
        "LookupError",
        "where?",
        "s",
    )
    assert "in raised" in (described.traceback or "")
    assert str(described) == "LookupError: where?"


@pytest.mark.parametrize(
    "error",
    [
        UnprintableError(),
        ExceptionGroup("group", [UnprintableError(), ValueError("x")]),
        BaseExceptionGroup("group", [KeyboardInterrupt()]),
        OddlyNotedError("x"),
        SecretlyNotedError("x"),
        NumberedError("x"),
        ValueError(Text("subclass")),
        ValueError(b"\xff", object(), UnprintableError),
        type("Ünname", (Exception,), {})("odd class name"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        SyntaxError("bad", ("file", 1, 1, "text\x00", 1, 2)),
        ValueError("\x00" * 100_000),
    ],
)
def test_any_exception_can_be_described(error: BaseException) -> None:
    described = describe_exception(raised(error))
    for text in (described.message, described.type or "", described.traceback or ""):
        assert text_problem(text) is None
        assert len(text.encode()) <= 16 * 1024


def test_causes_notes_and_members_are_in_the_traceback() -> None:
    error = ExceptionGroup("several", [ValueError("member")])
    error.__cause__ = KeyError("cause")
    error.add_note("note")
    described = describe_exception(raised(error))
    assert described.message == "several (1 sub-exception)\nnote"
    assert all(text in (described.traceback or "") for text in ("member", "cause", "note"))


def test_an_endless_chain_of_causes_is_cut() -> None:
    error: Exception = ValueError("first")
    for number in range(500):
        following = ValueError(f"error {number}")
        following.__cause__ = error
        error = following
    described = describe_exception(raised(error))
    assert described.message == "error 499"
    assert len((described.traceback or "").encode()) <= 16 * 1024
