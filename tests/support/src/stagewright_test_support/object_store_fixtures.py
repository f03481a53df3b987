"""What a test asks for to get a store of objects."""

from collections.abc import Iterator

import pytest

from stagewright_test_support.fixtures import shared_address
from stagewright_test_support.servers import FakeGcsServer, MinistackServer, MotoServer, ServerError
from stagewright_test_support.services import give_up, need_backend

__all__ = ["gcs_address", "gcs_server", "moto_address", "s3_address", "s3_server"]


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
    try:
        server = MotoServer.start()
    except ServerError as error:
        give_up("moto", str(error))
    with server:
        yield server.address


@pytest.fixture
def s3_server() -> Iterator[MinistackServer]:
    """A ministack of the test's own, which it may kill."""
    need_backend("s3")
    try:
        server = MinistackServer.start()
    except ServerError as error:
        give_up("s3", str(error))
    with server:
        yield server


@pytest.fixture
def gcs_server() -> Iterator[FakeGcsServer]:
    """A fake-gcs-server of the test's own, which it may kill."""
    need_backend("gcs")
    try:
        server = FakeGcsServer.start()
    except ServerError as error:
        give_up("gcs", str(error))
    with server:
        yield server
