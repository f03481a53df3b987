from pathlib import Path

import pytest

from stagewright_test_support import need_backend
from stagewright_test_support.fixtures import StartMariadb
from stagewright_test_support.servers import MariadbDatabases, MariadbServer, ServerError, mariadb_programs


def test_it_listens_on_the_loopback_address_and_makes_databases(mariadb_url: str) -> None:
    databases = MariadbDatabases.at(mariadb_url)
    assert mariadb_url == databases.url(mariadb_url.rpartition("/")[2])
    assert databases.execute("SELECT @@bind_address").strip() == "127.0.0.1"
    databases.create("made")
    with pytest.raises(ServerError, match="database exists"):
        databases.create("made")
    databases.drop("made")
    databases.drop("made")
    assert "made" not in databases.execute("SHOW DATABASES").split()


@pytest.mark.parametrize("name", ["", "Upper", "two words", "quo`te", "1st", "x" * 64])
def test_a_name_that_would_need_quoting_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="plain name"):
        MariadbDatabases(1).create(name)


def test_what_was_committed_outlives_a_kill_of_a_durable_server(mariadb_server: StartMariadb) -> None:
    server = mariadb_server(durable=True)
    server.create_database("kept")
    server.databases.execute("CREATE TABLE kept.words AS SELECT 'committed' AS word")
    server.kill()
    assert not server.is_running
    with pytest.raises(ServerError, match="connect"):
        server.databases.execute("SELECT 1")
    server.restart()
    assert server.databases.execute("SELECT word FROM kept.words").strip() == "committed"
    server.restart()
    assert server.is_running


def test_a_server_that_starts_leaves_the_temporary_files_of_another_alone(
    mariadb_server: StartMariadb,
) -> None:
    first = mariadb_server()
    own = Path(first.databases.execute("SELECT @@tmpdir").strip())
    # Named as the file of a query that sorts on disk.
    in_use = own / "#sql-temptable-1-2-3.MAI"
    in_use.touch()
    second = mariadb_server()
    assert in_use.exists()
    assert Path(second.databases.execute("SELECT @@tmpdir").strip()) != own


def test_a_failed_start_tells_the_last_lines_and_leaves_nothing(open_root: Path) -> None:
    need_backend("mariadb")
    with pytest.raises(ServerError, match="while it started") as caught:
        MariadbServer.start(settings={"no-such-setting": "1"}, root=open_root)
    assert caught.value.server == "mariadb"
    assert "no-such-setting" in str(caught.value)
    assert list(open_root.iterdir()) == []


def test_without_the_package_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    reason = mariadb_programs.mariadb_missing()
    assert reason is not None
    assert "mariadb-server" in reason
    with pytest.raises(ServerError, match="mariadb-server"):
        mariadb_programs.mariadb_program("mariadbd")
