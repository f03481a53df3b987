"""Lists of ids come in few lengths, whatever their number, and name no id that wasn't asked for."""

import pytest

from stagewright_persistence_sqlalchemy.id_lists import id_list


@pytest.mark.parametrize(
    ("count", "length"),
    [(0, 0), (1, 1), (2, 2), (3, 4), (100, 128), (1_024, 1_024), (1_025, 2_048), (5_000, 5_120)],
)
def test_the_length_is_the_next_step(count: int, length: int) -> None:
    ids = [f"id-{number}" for number in range(count)]
    named = id_list(ids)
    assert list(named) == [f"item_{number}" for number in range(length)]
    assert list(dict.fromkeys(named.values())) == ids
