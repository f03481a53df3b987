"""Kernels whose runs, jobs and large values are in stores of different kinds: every two kinds for every two of them."""

from collections.abc import AsyncIterator
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from stagewright.hosting import installed_adapters
from stagewright.plugins import AdapterRegistry, AdapterSet, discover_plugins
from stagewright_conformance import EngineSuite, Scale, installed_targets
from stagewright_conformance.places import OpenedPlace, Place, store_at
from stagewright_conformance.preparation import empty_store
from stagewright_test_support.services import need_backend

KINDS: Final = {"memory": "memory", "sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB"}
BLOBS: Final = {
    "memory": ("memory", "postgres", "mariadb", "sqlite"),
    "sqlite": ("mariadb", "sqlite", "memory", "postgres"),
    "postgres": ("sqlite", "mariadb", "postgres", "memory"),
    "mariadb": ("postgres", "memory", "sqlite", "mariadb"),
}
"""By where the runs are: where the blobs are, for jobs in memory, SQLite, PostgreSQL and MariaDB."""

SET_UPS: Final = [
    (runs, jobs, BLOBS[runs][number]) for runs, (number, jobs) in product(KINDS, enumerate(KINDS))
]
PAGE: Final = Path(__file__).parents[2] / "docs" / "conformance.md"


def named(runs: str, jobs: str, blobs: str) -> str:
    parts = [KINDS[runs]]
    parts += [f"jobs in {KINDS[jobs]}"] * (jobs != runs)
    parts += [f"blobs in {KINDS[blobs]}"] * (blobs != runs)
    return ", ".join(parts)


def params() -> list[Any]:  # Any: what `pytest.param` gives
    mark = pytest.mark.conformance_target
    return [pytest.param(one, marks=mark(named(*one)), id="-".join(one)) for one in SET_UPS]


@pytest.fixture(scope="session")
def registry() -> AdapterRegistry:
    return installed_adapters(discover_plugins())


class OnSetUp:
    """Adapters of one set-up, and the same as another process has them."""

    @pytest.fixture(params=params())
    def place(self, request: pytest.FixtureRequest) -> Place:
        targets = installed_targets()
        urls = {"memory": "memory://", "sqlite": "sqlite:///{folder}/matrix.db"}
        for kind in request.param:
            need_backend(kind)
            if kind not in urls:
                urls[kind] = request.getfixturevalue(f"{kind}_url")
        runs, jobs, blobs = (store_at(urls[kind], targets) for kind in request.param)
        apart = {"job_transport": jobs, "blob_store": blobs}
        return Place(home=runs, apart={port: one for port, one in apart.items() if one.url != runs.url})

    @pytest_asyncio.fixture
    async def opened(
        self, place: Place, registry: AdapterRegistry, tmp_path: Path
    ) -> AsyncIterator[OpenedPlace]:
        for store in place.stores:
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
        return Scale(moment=0.15)


@pytest.mark.thorough
class TestEngine(OnSetUp, EngineSuite):
    pass


@pytest.mark.parametrize("ports", list(combinations(range(3), 2)))
def test_every_two_kinds_meet_in_every_two_ports(ports: tuple[int, int]) -> None:
    one, other = ports
    assert {(each[one], each[other]) for each in SET_UPS} == set(product(KINDS, KINDS))
    assert all((kind, kind, kind) in SET_UPS for kind in KINDS)


def test_the_page_shows_every_set_up() -> None:
    cells = {
        line.split("|")[1].strip() for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line
    }
    assert {named(*one) for one in SET_UPS} <= cells
