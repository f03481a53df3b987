"""The name of a step in other systems."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright import derive_external_key

TEXT = st.text(st.characters(exclude_characters="\x00"), max_size=20)


@pytest.mark.guarantee("steps.external-keys-are-stable")
def test_a_key_is_the_same_everywhere_and_for_ever() -> None:
    assert derive_external_key("record", "charge") == "wfe-d470b97c49a94c669ed32cc9e0220710"


@given(TEXT, TEXT)
def test_every_other_system_takes_a_key(record: str, step_id: str) -> None:
    assert re.fullmatch(r"wfe-[0-9a-f]{32}", derive_external_key(record, step_id))


@given(TEXT, TEXT, TEXT)
def test_no_other_split_of_the_same_text_has_the_same_key(a: str, b: str, c: str) -> None:
    if b:
        assert derive_external_key(a + b, c) != derive_external_key(a, b + c)
