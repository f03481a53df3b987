"""Values in the blob store: written once, read back exactly, and every damage named."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.errors import SpilledPayloadUnavailableError
from stagewright.json_values import Json
from stagewright.memory import InMemoryBlobStore
from stagewright.records import ClaimCheck
from stagewright.runtime.claim_check import encoded, load_spilled, put_spilled
from stagewright.runtime.keys import run_prefix, stage_prefix, storage_prefix

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXT, children, max_size=3),
    max_leaves=8,
)


@given(VALUES)
async def test_any_value_comes_back(value: Json) -> None:
    blob_store = InMemoryBlobStore()
    claim = await put_spilled(blob_store, "k", encoded(value))
    assert claim == ClaimCheck(key="k", size=len(encoded(value)))
    assert await load_spilled(blob_store, claim) == value


def test_the_size_is_that_of_compact_utf8() -> None:
    assert encoded({"ü": [1, 2.5, None]}) == '{"ü":[1,2.5,null]}'.encode()


@pytest.mark.parametrize("data", [None, b"", b"[1,2", b"[1,2]x", b"\xff\xff\xff\xff\xff", b"[1,2}"])
async def test_a_missing_or_damaged_blob_is_named(blob_store: InMemoryBlobStore, data: bytes | None) -> None:
    claim = await put_spilled(blob_store, "the/key", b"[1,2]")
    await blob_store.delete("the/key")
    if data is not None:
        await blob_store.put("the/key", data)
    with pytest.raises(SpilledPayloadUnavailableError) as caught:
        await load_spilled(blob_store, claim)
    assert caught.value.key == "the/key"
    assert "'the/key'" in str(caught.value)


async def test_a_store_that_fails_is_named_with_its_error(
    blob_store: InMemoryBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(key: str) -> bytes:
        raise ConnectionError("bucket gone")

    monkeypatch.setattr(blob_store, "get", fail)
    with pytest.raises(SpilledPayloadUnavailableError, match="bucket gone"):
        await load_spilled(blob_store, ClaimCheck(key="k", size=1))


IDS = st.text(min_size=1, max_size=20)


@given(IDS, IDS, IDS, IDS)
def test_no_prefix_of_a_stage_reaches_into_another(workflow: str, run: str, stage: str, other: str) -> None:
    prefixes: list[Callable[[], str]] = [
        lambda: stage_prefix(workflow, run, stage),
        lambda: stage_prefix(workflow, run, other),
    ]
    first, second = (prefix() for prefix in prefixes)
    assert first.startswith(run_prefix(workflow, run))
    assert storage_prefix(workflow, run, stage).startswith(first)
    assert first.startswith(second) is (stage == other)
    assert first.count("/") == 4
