"""What a test asks for to get a store of objects."""

from collections.abc import Iterator

import pytest

from stagewright_test_support.fixtures import shared_address
from stagewright_test_support.servers import MotoServer
from stagewright_test_support.services import need_backend
from stagewright_test_support.starting import starting

__all__ = ["gcs_address", "moto_address", "s3_address"]


@pytest.fixture(scope="session")
def s3_address(request: pytest.FixtureRequest) -> str:
    """The URL of the session's ministack, `http://127.0.0.1:PORT`; its root's keys are `test` and `test`."""
    return shared_address(request.config, "s3")


@pytest.fixture(scope="session")
def gcs_address(request: pytest.FixtureRequest) -> str:
    """The URL of the session's fake-gcs-server, `http://127.0.0.1:PORT`."""
    return shared_address(request.config, "gcs")


@pytest.fixture(scope="module")
def moto_address() -> Iterator[str]:
    """The URL of a moto for one test module, `http://127.0.0.1:PORT`."""
    need_backend("moto")
    with starting(MotoServer.start) as start:
        yield start().address
