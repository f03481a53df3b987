from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stagewright.errors import DefinitionError, PluginConflictError, UnknownSchemeError
from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet


@asynccontextmanager
async def plain(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    yield AdapterSet()


@asynccontextmanager
async def with_driver(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    yield AdapterSet()


@pytest.fixture
def registry() -> AdapterRegistry:
    registry = AdapterRegistry()
    registry.add("sqlite", plain)
    registry.add("postgresql+special", with_driver)
    registry.add("postgresql", plain)
    return registry


@pytest.mark.parametrize(
    ("url", "opener"),
    [
        ("sqlite:///x.db", plain),
        ("sqlite+aiosqlite:///x.db", plain),
        ("SQLite:///x.db", plain),
        ("postgresql+special://h/d", with_driver),
        ("postgresql+asyncpg://h/d", plain),
    ],
)
def test_the_exact_scheme_goes_before_the_part_before_the_plus(
    registry: AdapterRegistry, url: str, opener: object
) -> None:
    assert registry.opener_of(url) is opener


@pytest.mark.parametrize("url", ["mongodb://x", "stagewright.db", "", "sqlite:x.db", "://x"])
def test_what_nobody_opens_is_an_error_that_lists_what_is_known(registry: AdapterRegistry, url: str) -> None:
    with pytest.raises(UnknownSchemeError) as caught:
        registry.opener_of(url, failed_plugins=("bad-dist:bad",))
    assert caught.value.known == ("postgresql", "postgresql+special", "sqlite")
    assert "'bad-dist:bad'" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://me:hunter2@host/db",
        "mongodb://me:hun@ter2@host/db",
        "mongodb://host/db?user=me&password=hunter2",
        "mongodb://host/db?pasword=hunter2&auth=hunter2#hunter2",
        "mongodb://:pass?hunter2@host",
        "mongodb://host/?hunter2@host=1",
        "mongodb://host/db?aws_secret_access_key=hunter2&x=1",
    ],
)
def test_errors_show_no_password(registry: AdapterRegistry, url: str) -> None:
    with pytest.raises(UnknownSchemeError) as caught:
        registry.opener_of(url)
    assert "ter2" not in str(caught.value)
    assert "mongodb://" in str(caught.value)


@pytest.mark.parametrize("scheme", ["", "SQLite", "sqlite://", "1x"])
def test_what_is_no_scheme_is_refused(scheme: str) -> None:
    with pytest.raises(DefinitionError, match="a scheme is"):
        AdapterRegistry().add(scheme, plain)


def test_an_opener_that_can_not_be_called_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the opener for 'far' of me: it is of type NoneType"):
        AdapterRegistry("me").add("far", None)  # type: ignore[arg-type] # the error is under test


def test_an_error_about_a_url_says_what_to_do(registry: AdapterRegistry) -> None:
    with pytest.raises(UnknownSchemeError) as caught:
        registry.opener_of("stagewright.db")
    assert str(caught.value) == (
        "no installed adapter opens 'stagewright.db'; write a URL, or use postgresql:// or postgresql+special:// or "
        "sqlite://"
    )


def test_claiming_a_scheme_twice_is_refused(registry: AdapterRegistry) -> None:
    with pytest.raises(PluginConflictError, match="scheme 'sqlite'"):
        registry.add("sqlite", with_driver)
    assert registry.opener_of("sqlite://") is plain


def test_a_set_says_what_it_serves() -> None:
    assert AdapterSet().served == ()
