from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import make_url, text

from stagewright.errors import InvalidSettingError, TransientError
from stagewright_persistence_sqlalchemy import create_engine
from stagewright_persistence_sqlalchemy.connecting import connected
from stagewright_persistence_sqlalchemy.url_parameters import checked_parameters

drivers = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])


async def settings(url: str, *names: str, **options: Any) -> list[str]:
    """What a new session has these settings set to, twice in a row on connections of their own."""
    engine = create_engine(url, **options)
    found: list[list[str]] = []
    for _ in range(2):
        async with engine.connect() as connection:
            found.append([(await connection.execute(text(f"SHOW {name}"))).scalar_one() for name in names])
            await connection.invalidate()
    await engine.dispose()
    assert found[0] == found[1]
    return found[0]


@drivers
async def test_the_words_of_libpq_mean_the_same_to_both_drivers(postgres_url: str, driver: str) -> None:
    options = quote("-c work_mem=5MB -csearch_path=x,public --lock-timeout=7s")
    parameters = f"?sslmode=disable&application_name=me&connect_timeout=9&options={options}"
    url = postgres_url.replace("postgresql", f"postgresql+{driver}") + parameters
    names = ("application_name", "work_mem", "search_path", "lock_timeout")
    assert await settings(url, *names) == ["me", "5MB", "x,public", "7s"]


@drivers
async def test_encryption_that_is_asked_for_is_not_done_without(postgres_url: str, driver: str) -> None:
    engine = create_engine(postgres_url.replace("postgresql", f"postgresql+{driver}") + "?sslmode=require")
    with pytest.raises((TransientError, ConnectionError), match="SSL"):
        async with connected(engine):
            pass
    await engine.dispose()


async def test_what_code_gives_goes_before_what_the_url_says(postgres_url: str) -> None:
    given = {"server_settings": {"application_name": "code"}}
    url = f"{postgres_url}?application_name=url&options=-cwork_mem%3D5MB"
    assert await settings(url, "application_name", "work_mem", connect_args=given) == ["code", "5MB"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("foo=1", "has the parameter 'foo', which can't be used: asyncpg takes .*psycopg"),
        ("sslrootcert=x.pem", "has the parameter 'sslrootcert'"),
        ("connect_timeout=soon", "'connect_timeout'.* whole number of seconds"),
        ("connect_timeout=0", "'connect_timeout'.* whole number of seconds"),
        ("options=fast", "'options'.* write it as -c name=value"),
        ("options='-c a=1", "'options'.* write it as -c name=value"),
        ("options=-c", "'options'.* write it as -c name=value"),
        ("options=--fast", "'options'.* write it as -c name=value"),
    ],
)
def test_what_can_not_be_used_is_named_before_anything_is_opened(parameters: str, words: str) -> None:
    with pytest.raises(InvalidSettingError, match=words) as refused:
        create_engine(f"postgresql+asyncpg://me:s3cret@host/name?{parameters}&application_name=me")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://h/db?pasword=hunter2",
        "postgresql+asyncpg://h/db?a=b&hunter2@h=1",
        "sqlite:///x.db?key=hunter2",
        "mariadb+asyncmy://h/db?auth=hunter2",
    ],
)
def test_of_a_parameter_only_the_name_is_shown(url: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        checked_parameters(make_url(url))
    assert "hunter2" not in f"{caught.value}{caught.value!r}"


@pytest.mark.parametrize(
    ("query", "given"),
    [
        ({}, {"user": "me"}),
        ({"sslmode": "require"}, {"user": "me", "ssl": "require"}),
        ({"connect_timeout": ("3", "4")}, {"user": "me", "timeout": 4.0}),
    ],
)
def test_the_arguments_are_put_in_place_once(query: Mapping[str, Any], given: dict[str, Any]) -> None:
    url = make_url("postgresql+asyncpg://me@host/name").update_query_dict(query)
    arguments = {"user": "me", **query}
    for _ in range(2):
        checked_parameters(url).put_into(arguments)
        assert arguments == given
