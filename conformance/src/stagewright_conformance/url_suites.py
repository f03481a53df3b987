"""Every suite on the places that `stagewright conformance` was given; collected by the pytest that it starts."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import pytest_asyncio

from stagewright.plugins import AdapterSet
from stagewright.ports import (
    AICallLogger,
    BlobStore,
    DatesBlobs,
    Enlistable,
    EventSink,
    ForeseesWork,
    JobTransport,
    Persistence,
    Presigner,
    RunReader,
    StepLedger,
)
from stagewright_conformance.blob_store import BlobDateSuite
from stagewright_conformance.borrowed_sessions import OpenSession
from stagewright_conformance.capabilities import Capabilities
from stagewright_conformance.delivered_job_enlistment import DeliveredJobEnlistmentSuite
from stagewright_conformance.delivered_jobs import DeliveredJobSuite
from stagewright_conformance.enlistment import TransportEnlistmentSuite
from stagewright_conformance.fair_claims import FairClaimSuite
from stagewright_conformance.outlook import JobOutlookSuite, OutlookSuite
from stagewright_conformance.places import ENGINE, OpenedPlace, Place
from stagewright_conformance.port_suites import (
    AI_CALL_SUITES,
    BLOB_DATE_SUITES,
    BLOB_STORE_SUITES,
    ENGINE_SUITES,
    EVENT_SINK_SUITES,
    JOB_TRANSPORT_SUITES,
    PERSISTENCE_SUITES,
    PRESIGNER_SUITES,
    RUN_READER_SUITES,
    STEP_LEDGER_SUITES,
    Suites,
)
from stagewright_conformance.preparation import empty_store
from stagewright_conformance.presigning import PresignerSuite
from stagewright_conformance.step_ledger import StepEnlistmentSuite
from stagewright_conformance.suite import Scale, Suite
from stagewright_conformance.url_run import RUN

__all__ = ["AtUrl"]

P = TypeVar("P")

_SUITES_OF_ONE_DATABASE: Final[Suites] = (
    TransportEnlistmentSuite,
    FairClaimSuite,
    DeliveredJobSuite,
    DeliveredJobEnlistmentSuite,
)

SUITES_OF_PORTS: Final[Mapping[str, Suites]] = {
    "persistence": PERSISTENCE_SUITES,
    "job_transport": JOB_TRANSPORT_SUITES,
    "step_ledger": STEP_LEDGER_SUITES,
    "blob_store": (*BLOB_STORE_SUITES, *BLOB_DATE_SUITES, *PRESIGNER_SUITES),
    "run_reader": RUN_READER_SUITES,
    "ai_call_logger": AI_CALL_SUITES,
    "event_sink": EVENT_SINK_SUITES,
    ENGINE: ENGINE_SUITES,
}


class AtUrl:
    """The fixtures of all suites, from two openings of the same URLs: the store and its competitor."""

    port: str

    @pytest_asyncio.fixture
    async def opened(
        self, place: Place, pytestconfig: pytest.Config, tmp_path: Path
    ) -> AsyncIterator[OpenedPlace]:
        """The place, empty."""
        store = place.store_of(self.port)
        used = {each.url for each in place.stores if self.port == ENGINE or each in (store, place.home)}
        for each in place.stores:
            if each.url in used:
                await empty_store(each)
        opening = place.opened(
            pytestconfig.stash[RUN].registry, tmp_path.as_posix(), only=lambda one: one.url in used
        )
        run = pytestconfig.stash[RUN]
        async with opening as opened, run.registry.open("memory://", run.options) as memory:
            yield replace(opened, spare=memory.persistence)

    @pytest_asyncio.fixture
    async def opened_elsewhere(
        self, opened: OpenedPlace, pytestconfig: pytest.Config, tmp_path: Path
    ) -> AsyncIterator[OpenedPlace]:
        """The same place as another process opens it; the very same where each opening is a store of its own."""
        used = set(opened.sets)
        opening = opened.place.opened(
            pytestconfig.stash[RUN].registry,
            tmp_path.as_posix(),
            only=lambda one: one.url in used and not one.opens_anew,
        )
        async with opening as other:
            yield replace(opened, sets={**opened.sets, **other.sets})

    @pytest.fixture
    def beside(self, opened: OpenedPlace) -> AdapterSet:
        """The ports of the store under test."""
        return opened.beside(self.port)

    @pytest.fixture
    def elsewhere(self, opened_elsewhere: OpenedPlace) -> AdapterSet:
        """The ports of the same store in another process."""
        return opened_elsewhere.beside(self.port)

    @pytest.fixture
    def capabilities(self, place: Place) -> Capabilities:
        """What the adapters of the store declare."""
        return place.store_of(self.port).capabilities

    @pytest.fixture
    def scale(self, place: Place, request: pytest.FixtureRequest, capabilities: Capabilities) -> Scale:
        """Moments as short as a store in this process takes, or as long as a database far away."""
        scale = Scale() if place.store_of(self.port).opens_anew else Scale(moment=0.15)
        needs = [str(name) for mark in request.node.iter_markers("needs") for name in mark.args]
        # What is expected to wait in vain need not wait for long.
        return scale if all(map(capabilities.has, needs)) else replace(scale, patience=2.0)

    @pytest.fixture
    def persistence(self, beside: AdapterSet, request: pytest.FixtureRequest) -> Persistence:
        """The persistence, or else that of the place's home, or else one in memory."""
        found = _served(beside.persistence, "persistence")
        if _is_test_of(request, OutlookSuite, JobOutlookSuite) and not isinstance(found, ForeseesWork):
            pytest.skip("the persistence is no ForeseesWork")
        return found

    @pytest.fixture
    def competitor(self, elsewhere: AdapterSet) -> Persistence:
        """The persistence in another process."""
        return _served(elsewhere.persistence, "persistence")

    @pytest_asyncio.fixture
    async def stranger(
        self, place: Place, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[Persistence]:
        """A persistence of the same kind over another store, or else one in memory."""
        store = place.store_of(self.port)
        url = store.at(tmp_path_factory.mktemp("stranger").as_posix())
        run = pytestconfig.stash[RUN]
        async with run.registry.open(url if store.is_new_each_time else "memory://", run.options) as other:
            yield _served(other.persistence, "persistence")

    @pytest.fixture
    def open_session(self) -> OpenSession:
        """No URL says how the caller opens sessions of its own."""
        pytest.skip("needs sessions of the caller's own; subclass the suite and override `open_session`")

    @pytest.fixture
    def reader(self, beside: AdapterSet) -> RunReader:
        """Reads what is committed."""
        return _served(beside.run_reader, "run_reader")

    @pytest.fixture
    def transport(self, opened: OpenedPlace, request: pytest.FixtureRequest) -> JobTransport:
        """The job transport."""
        found = _served(opened.beside(self.port).job_transport, "job_transport")
        if _is_test_of(request, *_SUITES_OF_ONE_DATABASE):
            _require_enlisting(found, opened, self.port)
        return found

    @pytest.fixture
    def rival_transport(self, elsewhere: AdapterSet) -> JobTransport:
        """The same jobs in another process."""
        return _served(elsewhere.job_transport, "job_transport")

    @pytest.fixture
    def clock_now(self, beside: AdapterSet) -> Callable[[], datetime]:
        """The store's clock, or else this machine's."""
        return (lambda: datetime.now(UTC)) if beside.clock is None else beside.clock.now

    @pytest.fixture
    def ledger(self, opened: OpenedPlace, request: pytest.FixtureRequest) -> StepLedger:
        """The step ledger."""
        found = _served(opened.beside(self.port).step_ledger, "step_ledger")
        if _is_test_of(request, StepEnlistmentSuite):
            _require_enlisting(found, opened, self.port)
        return found

    @pytest.fixture
    def ai_calls(self, beside: AdapterSet) -> AICallLogger:
        """The log of model calls."""
        return _served(beside.ai_call_logger, "ai_call_logger")

    @pytest.fixture
    def rival_ai_calls(self, elsewhere: AdapterSet) -> AICallLogger:
        """The same log in another process."""
        return _served(elsewhere.ai_call_logger, "ai_call_logger")

    @pytest.fixture
    def blob_store(self, beside: AdapterSet, request: pytest.FixtureRequest) -> BlobStore:
        """The blob store."""
        found = _served(beside.blob_store, "blob_store")
        if _is_test_of(request, PresignerSuite) and not isinstance(found, Presigner):
            pytest.skip("the blob store is no Presigner")
        if _is_test_of(request, BlobDateSuite) and not isinstance(found, DatesBlobs):
            pytest.skip("the blob store is no DatesBlobs")
        return found

    @pytest.fixture
    def adapters(self, opened: OpenedPlace) -> AdapterSet:
        """The ports as a kernel gets them."""
        return opened.adapters

    @pytest.fixture
    def other_adapters(self, opened_elsewhere: OpenedPlace) -> AdapterSet:
        """The same in another process."""
        return opened_elsewhere.adapters

    @pytest.fixture
    def event_sink(self) -> EventSink:
        """No URL says where to look for what has arrived."""
        pytest.skip("needs to see what arrives at the sink; subclass the suite and override `destination`")

    @pytest.fixture
    def rival_blob_store(self, elsewhere: AdapterSet) -> BlobStore:
        """The same blobs in another process."""
        return _served(elsewhere.blob_store, "blob_store")


def _served(port: P | None, name: str) -> P:
    if port is None:
        pytest.skip(f"the URL serves no {name}")
    return port


def _require_enlisting(adapter: object, opened: OpenedPlace, port: str) -> None:
    """Leave out what is for one database alone, where two stores keep the two ports."""
    persistence = _served(opened.beside(port).persistence, "persistence")
    enlists = isinstance(adapter, Enlistable) and adapter.enlist(persistence) is not None
    if opened.is_apart(port) and not enlists:
        pytest.skip(f"the {port} is in another database than the persistence")


def _is_test_of(request: pytest.FixtureRequest, *suites: type[Suite]) -> bool:
    kind: object = request.cls
    return isinstance(kind, type) and issubclass(kind, suites)


def _test_class(port: str, suite: type[Suite]) -> type[Any]:
    members = {"port": port, "__module__": __name__, "__doc__": suite.__doc__}
    return type(f"Test{suite.__name__}", (AtUrl, suite), members)


globals().update(
    (f"Test{suite.__name__}", _test_class(port, suite))
    for port, suites in SUITES_OF_PORTS.items()
    for suite in suites
)
