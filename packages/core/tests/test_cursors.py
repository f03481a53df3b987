import base64
import hashlib
import json

import pytest

from stagewright.cursors import cursor_after_place, place_after
from stagewright.errors import InvalidCursorError


def encoded(text: str) -> str:
    written = text.encode()
    return base64.urlsafe_b64encode(hashlib.sha256(written).digest()[:6] + written).decode()


@pytest.mark.parametrize("place", [0, 1, 2**63 - 1])
def test_a_place_comes_back(place: int) -> None:
    assert place_after("jobs", cursor_after_place("jobs", place)) == place


@pytest.mark.parametrize(
    "text",
    ["", "[]", '["jobs"]', '["runs", 1]', '["jobs", -1]', '["jobs", true]', '["jobs", 1.0]', '["jobs", "1"]',
     '["jobs",1]', '["jobs", 1, 2]', '["jobs", null]', "1", "{}", json.dumps(["jobs", 2**63]), "[" * 100_000],
)  # fmt: skip
def test_what_was_never_given_is_no_place(text: str) -> None:
    with pytest.raises(InvalidCursorError):
        place_after("jobs", encoded(text))
