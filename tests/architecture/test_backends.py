import pytest

from stagewright_test_support.services import Backend, missing_backends, need_backend, required_backends

HERE = Backend("here", lambda: None)
GONE = Backend("gone", lambda: "no server")
BACKENDS = {"here": HERE, "gone": GONE}


def test_a_backend_that_is_there_is_used() -> None:
    need_backend("here", backends=BACKENDS, environment={"CI": "true"})


def test_a_missing_backend_skips_on_a_laptop() -> None:
    with pytest.raises(pytest.skip.Exception, match="no server"):
        need_backend("gone", backends=BACKENDS, environment={})


@pytest.mark.parametrize("environment", [{"CI": "true"}, {"STAGEWRIGHT_REQUIRE": "here, gone"}])
def test_a_missing_backend_fails_where_it_is_required(environment: dict[str, str]) -> None:
    with pytest.raises(pytest.fail.Exception, match="no server"):
        need_backend("gone", backends=BACKENDS, environment=environment)


def test_what_is_not_offered_for_this_system_fails_where_it_is_named_alone() -> None:
    backends = {"gone": Backend("gone", lambda: "no server", lambda: False)}
    with pytest.raises(pytest.skip.Exception, match="no server"):
        need_backend("gone", backends=backends, environment={"CI": "true"})
    with pytest.raises(pytest.fail.Exception, match="no server"):
        need_backend("gone", backends=backends, environment={"STAGEWRIGHT_REQUIRE": "gone"})


def test_required_names_are_read_from_a_list_with_commas() -> None:
    assert required_backends({"STAGEWRIGHT_REQUIRE": " a, b,,"}) == {"a", "b"}
    assert required_backends({}) == frozenset()


def test_missing_and_unknown_backends_are_told_before_the_first_test() -> None:
    required = frozenset({"here", "gone", "unheard-of"})
    assert missing_backends(required, BACKENDS) == ["gone: no server", "unheard-of: no backend has this name"]


def test_the_in_memory_backend_is_there() -> None:
    assert missing_backends(frozenset({"memory"})) == []
