"""Kernels whose runs, jobs and large values are in stores of different kinds: every two kinds in every two ports."""

from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from stagewright.hosting import installed_adapters
from stagewright.plugins import AdapterRegistry, AdapterSet, discover_plugins
from stagewright.ports import BlobStore, JobTransport
from stagewright_conformance import (
    BlobStreamSuite,
    BlobSuite,
    Capabilities,
    EngineSuite,
    JobFenceSuite,
    JobLeaseSuite,
    JobQueueSuite,
    Scale,
    installed_targets,
)
from stagewright_conformance.places import OpenedPlace, Place, store_at
from stagewright_conformance.preparation import empty_store
from stagewright_test_support.buckets import Bucket, gcs_bucket, s3_bucket
from stagewright_test_support.services import need_backend

KINDS: Final = {
    "memory": "memory",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "mariadb": "MariaDB",
    "valkey": "Valkey",
    "files": "files",
    "s3": "S3",
    "gcs": "Cloud Storage",
}
RUNS: Final = ("memory", "sqlite", "postgres", "mariadb")
OWN: Final = "own"
"""In the store of the runs."""

JOBS: Final = (OWN, "valkey")
BLOBS: Final = (OWN, "memory", "files", "s3", "gcs")
SET_UPS: Final = (
    ("memory", OWN, "memory"),
    ("memory", "valkey", "files"),
    ("memory", "postgres", "s3"),
    ("memory", "valkey", "gcs"),
    ("sqlite", "valkey", OWN),
    ("sqlite", "valkey", "memory"),
    ("sqlite", OWN, "files"),
    ("sqlite", "valkey", "s3"),
    ("sqlite", "memory", "gcs"),
    ("postgres", OWN, OWN),
    ("postgres", "valkey", "memory"),
    ("postgres", "mariadb", "files"),
    ("postgres", "valkey", "s3"),
    ("postgres", OWN, "gcs"),
    ("mariadb", "valkey", OWN),
    ("mariadb", "sqlite", "memory"),
    ("mariadb", "valkey", "files"),
    ("mariadb", OWN, "s3"),
    ("mariadb", "valkey", "gcs"),
)
"""Where the runs, the jobs and the blobs are. Of each kind of runs one has its jobs in another database."""

PAGE: Final = Path(__file__).parents[2] / "docs" / "conformance.md"


def named(runs: str, jobs: str, blobs: str) -> str:
    places = {"jobs": jobs, "blobs": blobs}
    apart = [f"{what} in {KINDS[kind]}" for what, kind in places.items() if kind not in (OWN, runs)]
    return ", ".join([KINDS[runs], *apart])


def params(set_ups: Mapping[str, tuple[str, str, str]]) -> list[Any]:  # Any: what `pytest.param` gives
    mark = pytest.mark.conformance_target
    return [pytest.param(one, marks=mark(name), id="-".join(one)) for name, one in set_ups.items()]


def of_each_kind_apart(port: int) -> dict[str, tuple[str, str, str]]:
    """One set-up for each kind of store that keeps a port's things apart from the runs."""
    found: dict[str, tuple[str, str, str]] = {}
    for one in SET_UPS:
        if one[port] not in (OWN, one[0]):
            found.setdefault(one[port], one)
    return {named(*one): one for one in found.values()}


@pytest.fixture(scope="session")
def registry() -> AdapterRegistry:
    return installed_adapters(discover_plugins())


def reachable(bucket: Bucket) -> Iterator[Bucket]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in bucket.environment.items():
            environment.setenv(name, value)
        yield bucket


@pytest.fixture(scope="module")
def s3(s3_address: str) -> Iterator[Bucket]:
    yield from reachable(s3_bucket(s3_address))


@pytest.fixture(scope="module")
def gcs(gcs_address: str) -> Iterator[Bucket]:
    yield from reachable(gcs_bucket(gcs_address))


class OnSetUp:
    """Adapters of one set-up, and the same as another process has them."""

    port: str | None = None
    """The port under test; its store is opened beside that of the runs, and no other. None for all of them."""

    @pytest.fixture
    def place(self, request: pytest.FixtureRequest, set_up: tuple[str, str, str]) -> Place:
        targets = installed_targets()
        urls = {
            "memory": "memory://",
            "sqlite": "sqlite:///{folder}/matrix.db",
            "files": "file://{folder}/blobs",
        }
        runs, jobs, blobs = (set_up[0] if kind == OWN else kind for kind in set_up)
        for kind in {runs, jobs, blobs} - {"files"}:
            need_backend(kind)
        for kind in {runs, jobs, blobs} - set(urls):
            in_bucket = kind in ("s3", "gcs")
            urls[kind] = (
                request.getfixturevalue(kind).url() if in_bucket else request.getfixturevalue(f"{kind}_url")
            )
        home, queue, bucket = (store_at(urls[kind], targets) for kind in (runs, jobs, blobs))
        apart = {"job_transport": queue, "blob_store": bucket}
        wanted = apart if self.port is None else {self.port: apart[self.port]}
        return Place(home=home, apart={port: one for port, one in wanted.items() if one.url != home.url})

    @pytest_asyncio.fixture
    async def opened(
        self, place: Place, registry: AdapterRegistry, tmp_path: Path
    ) -> AsyncIterator[OpenedPlace]:
        for store in place.stores:
            # In a bucket each test has a prefix of its own.
            if not store.url.startswith(("s3:", "gs:")):
                await empty_store(store)
        async with place.opened(registry, tmp_path.as_posix()) as opened:
            yield opened

    @pytest.fixture
    def adapters(self, opened: OpenedPlace) -> AdapterSet:
        return opened.adapters

    @pytest_asyncio.fixture
    async def opened_elsewhere(
        self, opened: OpenedPlace, registry: AdapterRegistry, tmp_path: Path
    ) -> AsyncIterator[OpenedPlace]:
        opening = opened.place.opened(registry, tmp_path.as_posix(), only=lambda store: not store.opens_anew)
        async with opening as other:
            yield OpenedPlace(opened.place, {**opened.sets, **other.sets})

    @pytest.fixture
    def other_adapters(self, opened_elsewhere: OpenedPlace) -> AdapterSet:
        return opened_elsewhere.adapters

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=6, moment=0.15, patience=60.0)


@pytest.mark.thorough
class TestEngine(OnSetUp, EngineSuite):
    @pytest.fixture(params=params({named(*one): one for one in SET_UPS}))
    def set_up(self, request: pytest.FixtureRequest) -> Any:
        return request.param


class WithJobsApart(OnSetUp):
    """The jobs of a set-up, in each kind of store where they aren't where the runs are."""

    port = "job_transport"

    @pytest.fixture(params=params(of_each_kind_apart(1)))
    def set_up(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def transport(self, adapters: AdapterSet) -> JobTransport:
        assert adapters.job_transport is not None
        return adapters.job_transport

    @pytest.fixture
    def rival_transport(self, other_adapters: AdapterSet) -> JobTransport:
        assert other_adapters.job_transport is not None
        return other_adapters.job_transport

    @pytest.fixture
    def capabilities(self, place: Place) -> Capabilities:
        return place.store_of("job_transport").capabilities


@pytest.mark.thorough
class TestJobQueue(WithJobsApart, JobQueueSuite):
    pass


@pytest.mark.thorough
class TestJobFences(WithJobsApart, JobFenceSuite):
    pass


@pytest.mark.thorough
class TestJobLeases(WithJobsApart, JobLeaseSuite):
    pass


class WithBlobsApart(OnSetUp):
    """The blobs of a set-up, in each kind of store where they aren't where the runs are."""

    port = "blob_store"

    @pytest.fixture(params=params(of_each_kind_apart(2)))
    def set_up(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def blob_store(self, adapters: AdapterSet) -> BlobStore:
        assert adapters.blob_store is not None
        return adapters.blob_store

    @pytest.fixture
    def rival_blob_store(self, other_adapters: AdapterSet) -> BlobStore:
        assert other_adapters.blob_store is not None
        return other_adapters.blob_store

    @pytest.fixture
    def capabilities(self, place: Place) -> Capabilities:
        return place.store_of("blob_store").capabilities


@pytest.mark.thorough
class TestBlobs(WithBlobsApart, BlobSuite):
    pass


@pytest.mark.thorough
class TestBlobStreams(WithBlobsApart, BlobStreamSuite):
    pass


def test_every_two_kinds_meet_in_every_two_ports() -> None:
    # In memory the runs' own store is memory itself.
    assert {(runs, blobs) for runs, _, blobs in SET_UPS} == {*product(RUNS, BLOBS)} - {("memory", OWN)}
    assert {*product(RUNS, JOBS)} <= {(runs, jobs) for runs, jobs, _ in SET_UPS}
    assert {*product(JOBS, BLOBS)} <= {(jobs, blobs) for _, jobs, blobs in SET_UPS}


def test_each_kind_of_runs_has_its_jobs_in_another_database_once() -> None:
    others = {runs: jobs for runs, jobs, _ in SET_UPS if jobs not in JOBS}
    assert set(others) == set(others.values()) == set(RUNS)
    assert all(runs != jobs for runs, jobs in others.items())


def test_the_page_shows_every_set_up() -> None:
    cells = {
        line.split("|")[1].strip() for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line
    }
    assert {named(*one) for one in SET_UPS} <= cells
