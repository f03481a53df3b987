"""Ids are version 7 UUIDs that sort by when they were made, in whatever thread or process."""

import os
import threading
import uuid

import pytest

from stagewright.system import TimeSortableIds

_MANY = 1_000


def test_ids_are_uuids_of_version_7_that_rise_and_never_repeat() -> None:
    ids = TimeSortableIds()
    made = [ids.new_id() for _ in range(_MANY)]
    assert made == sorted(made)
    assert len({one[19:] for one in made}) == _MANY
    for one in made:
        parsed = uuid.UUID(one)
        assert (str(parsed), parsed.version, parsed.variant) == (one, 7, uuid.RFC_4122)


def test_the_random_bits_are_all_random() -> None:
    ids = TimeSortableIds()
    ends = [uuid.UUID(ids.new_id()).int & (1 << 62) - 1 for _ in range(_MANY)]
    for bit in range(62):
        # Fewer than 300 or more than 700 of 1,000 fair tosses come up once in more than 10**36.
        assert 300 < sum(end >> bit & 1 for end in ends) < 700, bit


def test_threads_get_different_ids() -> None:
    ids = TimeSortableIds()
    made: list[list[str]] = [[] for _ in range(4)]

    def make(into: list[str]) -> None:
        into.extend(ids.new_id() for _ in range(_MANY))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({one[19:] for mine in made for one in mine}) == 4 * _MANY


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes don't fork here")
def test_a_forked_child_draws_random_bits_of_its_own() -> None:
    ids = TimeSortableIds()
    ids.new_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "\n".join(ids.new_id() for _ in range(20)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        childs = answer.read().split("\n")
    os.waitpid(child, 0)
    mine = [ids.new_id() for _ in range(20)]
    assert len(childs) == 20
    assert not {one[19:] for one in childs} & {one[19:] for one in mine}
