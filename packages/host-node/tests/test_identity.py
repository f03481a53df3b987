import os
import socket
from datetime import UTC, datetime

import pytest

from stagewright.errors import InvalidSettingError
from stagewright_host_node.identity import incarnation_of


def test_a_worker_id_names_label_machine_process_and_start() -> None:
    name = incarnation_of("billing", datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC))
    assert name == f"billing@{socket.gethostname()}:{os.getpid()}:20300102T030405.000006Z"


def test_two_incarnations_are_never_the_same() -> None:
    assert incarnation_of("w") != incarnation_of("w")


@pytest.mark.parametrize("label", ["", "x" * 101, "a\x1bb", "two\nlines"])
def test_a_label_is_short_and_printable(label: str) -> None:
    with pytest.raises(InvalidSettingError, match="worker_id="):
        incarnation_of(label)


def test_the_longest_name_fits_into_a_command() -> None:
    assert len(incarnation_of("x" * 100)) <= 255
