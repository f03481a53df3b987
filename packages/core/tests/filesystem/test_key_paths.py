"""Names of files for keys: legal everywhere, never the same for two keys, and read back exactly."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stagewright.filesystem.key_paths import BLOB, FOLDER, LONG_KEY, folders_of, name_in, path_of

KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60) | st.lists(
    st.sampled_from(
        ["", ".", "..", "a", "A", "con", "nul.txt", "x" * 300, "é", " ", "...", "%2F", "^a", "!61;"]
    ),
    min_size=1,
    max_size=12,
).map("/".join).filter(bool)

RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


@given(KEYS)
@example("x" * 900)
@example("/" * 900)
@example("𝔘" * 650)
def test_every_name_is_one_that_every_file_system_takes(key: str) -> None:
    path = path_of(key)
    for name in path:
        assert re.fullmatch(r"[+=~][a-z0-9_.%^!;-]*", name)
        assert len(name) <= 240
        assert not name.endswith(".")
        assert not RESERVED.fullmatch(name)
    assert len("/".join(path)) < 1_700


@pytest.mark.guarantee("files.every-key-apart")
@given(st.lists(KEYS, min_size=2, max_size=8, unique=True))
@example(["case", "CASE", "Case", "cas^e"])
@example(["a", "a/", "/a", "a//", "a/."])
@example(["e\u0301", "\u00e9"])
@example(["x" * 899 + "y", "x" * 899 + "z"])
def test_no_two_keys_have_one_file_and_no_file_is_anothers_folder(keys: list[str]) -> None:
    paths = {path_of(key) for key in keys}
    assert len(paths) == len(keys)
    for path in paths:
        assert path[-1][0] in BLOB + LONG_KEY
        assert all(name[0] == FOLDER for name in path[:-1])


@given(KEYS)
def test_a_key_is_read_back_from_its_names(key: str) -> None:
    *folders, last = path_of(key)
    if last.startswith(BLOB):
        assert "/".join(str(name_in(name[1:])) for name in [*folders, last]) == key
    else:
        assert re.fullmatch("~[0-9a-f]{64}", last)
        assert list(folders) == list(folders_of(key.split("/")[:-1]))[: len(folders)]


@pytest.mark.parametrize(
    "name", ["A", "é", " ", "!41;", "!61;", "!110000;", "a.", "^", "!;", "a/b", "~", "a^1"]
)
def test_what_the_store_has_not_written_is_no_name(name: str) -> None:
    assert name_in(name) is None
