import sqlite3

import psycopg

from stagewright_test_support.fixtures import StartPostgres


def test_a_module_keeps_its_database_from_test_to_test(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE here (n int)")


def test_the_next_test_of_the_module_finds_it(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM here").fetchone() == (0,)


def test_a_server_of_its_own_is_another(postgres_server: StartPostgres, postgres_url: str) -> None:
    server = postgres_server(settings={"max_connections": "7"})
    assert f":{server.port}/" not in postgres_url
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SHOW max_connections").fetchone() == ("7",)


def test_each_test_has_a_file_for_sqlite(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connection.close()
