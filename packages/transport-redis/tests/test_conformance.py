"""The conformance suite on Redis and Valkey."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from stagewright.hosting import installed_adapters
from stagewright.plugins import AdapterOptions, AdapterSet, discover_plugins
from stagewright.ports import JobTransport
from stagewright_conformance import (
    JOB_TRANSPORT_SUITES,
    DeliveredJobEnlistmentSuite,
    DeliveredJobSuite,
    EngineCrashSuite,
    EngineCrowdSuite,
    EngineSuite,
    FairClaimSuite,
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
    TransportEnlistmentSuite,
    suites_left_out,
)
from stagewright_transport_redis import RedisJobTransport
from stagewright_transport_redis.plugin import stagewright_conformance_targets

TARGET = pytest.mark.conformance_target
WAYS = (
    pytest.param("valkey", marks=TARGET("Valkey")),
    pytest.param("redis", marks=[TARGET("Redis"), pytest.mark.thorough]),
    pytest.param("oldest_redis", marks=[TARGET("Redis"), pytest.mark.wide]),
    pytest.param("system_redis", marks=[TARGET("Redis"), pytest.mark.wide]),
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


class OnPostgres(OnServer):
    """Runs in PostgreSQL, as two processes have them, and their jobs in Redis."""

    @pytest_asyncio.fixture
    async def stores(
        self, postgres_url: str, server: str, transport: JobTransport, rival_transport: JobTransport
    ) -> AsyncIterator[tuple[AdapterSet, AdapterSet]]:
        for target in discover_plugins().conformance_targets():
            if target.name == "PostgreSQL, asyncpg":
                assert target.empty is not None
                await target.empty(postgres_url)
        registry = installed_adapters(discover_plugins())
        async with (
            registry.open(postgres_url, AdapterOptions()) as one,
            registry.open(postgres_url, AdapterOptions()) as other,
        ):
            yield replace(one, job_transport=transport), replace(other, job_transport=rival_transport)

    @pytest.fixture
    def adapters(self, stores: tuple[AdapterSet, AdapterSet]) -> AdapterSet:
        return stores[0]

    @pytest.fixture
    def other_adapters(self, stores: tuple[AdapterSet, AdapterSet]) -> AdapterSet:
        return stores[1]


@pytest.mark.wide
class TestEngineOnPostgres(OnPostgres, EngineSuite):
    pass


@pytest.mark.wide
class TestEngineCrowdsOnPostgres(OnPostgres, EngineCrowdSuite):
    pass


@pytest.mark.wide
class TestEngineCrashesOnPostgres(OnPostgres, EngineCrashSuite):
    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=8, moment=0.15)


def test_the_suite_runs_on_every_target_that_the_plugin_names() -> None:
    names = {target.name for target in stagewright_conformance_targets()}
    assert names == {str(mark.args[0]) for way in WAYS for mark in way.marks if mark.name == TARGET.name}


def test_no_suite_is_left_out_but_those_of_transactions() -> None:
    left_out = suites_left_out(globals(), JOB_TRANSPORT_SUITES)
    of_one_database = (
        TransportEnlistmentSuite,
        FairClaimSuite,
        DeliveredJobSuite,
        DeliveredJobEnlistmentSuite,
    )
    assert left_out == [suite.__name__ for suite in of_one_database]
