import pytest

from stagewright_test_support.backend_choice import stores


def marks_of(*names: str, differ: set[str]) -> dict[str, list[str]]:
    return {one.values[0]: [mark.name for mark in one.marks] for one in stores(*names, differ=differ)}


def test_sqlite_and_postgresql_by_asyncpg_are_for_every_session_others_for_the_wide_one() -> None:
    assert marks_of("memory", "sqlite", "asyncpg", "psycopg", "mariadb", differ=set()) == {
        "memory": [],
        "sqlite": [],
        "asyncpg": [],
        "psycopg": ["wide"],
        "mariadb": ["wide"],
    }
    assert marks_of("postgres", "asyncpg at repeatable read", differ=set()) == {
        "postgres": [],
        "asyncpg at repeatable read": ["wide"],
    }


def test_what_a_test_is_about_stays_in_every_session() -> None:
    assert marks_of("psycopg", "mariadb", differ={"mariadb"}) == {"psycopg": ["wide"], "mariadb": []}


def test_nothing_differs_that_the_test_does_not_run_on() -> None:
    with pytest.raises(ValueError, match="doesn't run on mariadb"):
        stores("sqlite", differ={"mariadb"})
