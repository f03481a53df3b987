"""The conformance suite on Redis and Valkey."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stagewright.plugins import AdapterSet
from stagewright.ports import JobTransport
from stagewright_conformance import (
    EngineCrashSuite,
    EngineCrowdSuite,
    EngineSuite,
    FairDeliverySuite,
    HeartbeatSuite,
    JobAcknowledgementSuite,
    JobAdminSuite,
    JobFenceSuite,
    JobGroupSuite,
    JobLeaseSuite,
    JobListingSuite,
    JobQueueSuite,
    JobResumptionSuite,
    Scale,
)
from stagewright_transport_redis import RedisJobTransport
from stagewright_transport_redis.plugin import stagewright_conformance_targets

TARGET = pytest.mark.conformance_target
WAYS = (
    pytest.param("valkey", marks=TARGET("Valkey")),
    pytest.param("redis", marks=[TARGET("Redis"), pytest.mark.thorough]),
)


class OnServer:
    """A namespace on one server; whoever competes has connections of its own."""

    @pytest.fixture(params=WAYS)
    def way(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def server(self, way: str, request: pytest.FixtureRequest, redis_prefix: str) -> str:
        return f"{request.getfixturevalue(f'{way}_url')}?namespace={redis_prefix}"

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(moment=0.15)

    @pytest_asyncio.fixture
    async def opened(self, server: str) -> AsyncIterator[tuple[JobTransport, JobTransport]]:
        one, other = RedisJobTransport.from_url(server), RedisJobTransport.from_url(server)
        async with one, other:
            yield one, other

    @pytest.fixture
    def transport(self, opened: tuple[JobTransport, JobTransport]) -> JobTransport:
        return opened[0]

    @pytest.fixture
    def rival_transport(self, opened: tuple[JobTransport, JobTransport]) -> JobTransport:
        return opened[1]

    @pytest.fixture
    def adapters(self, transport: JobTransport) -> AdapterSet:
        return AdapterSet(job_transport=transport)

    @pytest.fixture
    def other_adapters(self, rival_transport: JobTransport) -> AdapterSet:
        return AdapterSet(job_transport=rival_transport)


class TestJobQueue(OnServer, JobQueueSuite):
    pass


class TestJobResumptions(OnServer, JobResumptionSuite):
    pass


class TestJobAcknowledgements(OnServer, JobAcknowledgementSuite):
    pass


class TestJobFences(OnServer, JobFenceSuite):
    pass


class TestJobLeases(OnServer, JobLeaseSuite):
    pass


class TestHeartbeats(OnServer, HeartbeatSuite):
    pass


class TestJobAdmin(OnServer, JobAdminSuite):
    pass


class TestJobListing(OnServer, JobListingSuite):
    pass


class TestFairDelivery(OnServer, FairDeliverySuite):
    pass


class TestJobGroups(OnServer, JobGroupSuite):
    pass


class TestEngine(OnServer, EngineSuite):
    pass


class TestEngineCrowds(OnServer, EngineCrowdSuite):
    pass


class TestEngineCrashes(OnServer, EngineCrashSuite):
    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=1, moment=0.15)


def test_the_suite_runs_on_every_target_that_the_plugin_names() -> None:
    names = {target.name for target in stagewright_conformance_targets()}
    assert names == {str(mark.args[0]) for way in WAYS for mark in way.marks if mark.name == TARGET.name}
