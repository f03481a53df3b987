"""What a URL may say, what is refused, and that secrets are shown nowhere."""

from datetime import timedelta

import pytest

from stagewright.errors import InvalidSettingError
from stagewright_transport_redis import RedisJobTransport
from stagewright_transport_redis.redis_url import RedisOptions, address_of

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "db", "is_tls"),
    [
        ("redis://", "server", (("localhost", 6379),), 0, False),
        ("redis://h", "server", (("h", 6379),), 0, False),
        ("REDIS://h:1/3", "server", (("h", 1),), 3, False),
        ("valkey://h:1/", "server", (("h", 1),), 0, False),
        ("rediss://h:1", "server", (("h", 1),), 0, True),
        ("valkeys://[::1]:1", "server", (("::1", 1),), 0, True),
        ("unix:///run/a%20b.sock?db=2", "socket", (), 2, False),
        ("redis+sentinel://h,i:7/main", "sentinel", (("h", 26379), ("i", 7)), 0, False),
        ("rediss+sentinel://h/main/4", "sentinel", (("h", 26379),), 4, True),
        ("valkey+cluster://h:7,[::1]:8", "cluster", (("h", 7), ("::1", 8)), 0, False),
    ],
)
def test_a_url_says_where_to_connect(
    url: str, kind: str, hosts: tuple[tuple[str, int], ...], db: int, is_tls: bool
) -> None:
    address = address_of(url)
    assert (address.kind, address.hosts, address.db, address.is_tls) == (kind, hosts, db, is_tls)


def test_a_url_says_what_the_transport_does() -> None:
    address = address_of(
        "rediss+sentinel://me:p%40ss@h/main?namespace=team.one&keep_ended=2h&connect_timeout=1s&socket_timeout=500ms"
        "&max_connections=3&client_name=shop&sentinel_username=watcher&sentinel_password=s&ssl_cert_reqs=none"
    )
    assert address.options == RedisOptions(
        namespace="team.one",
        keep_ended=timedelta(hours=2),
        connect_timeout=timedelta(seconds=1),
        socket_timeout=timedelta(milliseconds=500),
        max_connections=3,
        client_name="shop",
    )
    assert (address.username, address.password, address.service) == ("me", "p@ss", "main")
    assert (address.sentinel_username, address.sentinel_password) == ("watcher", "s")
    assert address.tls == {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    assert address_of("unix:///run/r.sock").path == "/run/r.sock"
    assert address_of("redis://h?namespace=a", namespace="b").options.namespace == "b"


@pytest.mark.guarantee("redis.bad-urls-are-refused")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "must begin with one of redis://"),
        ("redis", "must begin with one of redis://"),
        ("amqp://h", "must begin with one of redis://"),
        ("redis+tls://h", "may have '+sentinel' or '+cluster'"),
        ("unix+cluster:///run/r.sock", "may have '+sentinel' or '+cluster'"),
        ("unix://run/r.sock", "must have the path of a socket"),
        ("unix://", "must have the path of a socket"),
        ("redis://:pass?wordtail@host", "percent-encode '/', '?', '#' and '@' in a password"),
        ("redis://:pa/ss#wo@host", "percent-encode '/', '?', '#' and '@' in a password"),
        ("redis://h:x", "must have a host"),
        ("redis://h:0", "must have a host"),
        ("redis://h:70000", "must have a host"),
        ("redis://::1", "must have a host"),
        ("redis://h,i", "names several hosts; write redis+sentinel:// or redis+cluster://"),
        ("redis://h/one", "must have the number of a database"),
        ("redis://h/1/2", "must have the number of a database"),
        ("redis://h/-1", "must have the number of a database"),
        ("redis+cluster://h/1", "a cluster has number 0 alone"),
        ("redis+sentinel://h", "must name the sentinels' master"),
        ("redis+sentinel://h/main/x", "must have the number of a database"),
        ("redis://h?db=1", "has the parameter 'db'; here it can have client_name, connect_timeout"),
        ("redis://h?decode_responses=true", "has the parameter 'decode_responses'"),
        ("redis://h?ssl_ca_certs=x", "has the parameter 'ssl_ca_certs'"),
        ("redis://h?sentinel_password=x", "has the parameter 'sentinel_password'"),
        ("redis://h?namespace=a&namespace=b", "has the parameter 'namespace' more than once"),
        ("redis://h?namespace=a%7Bb", "namespace='a{b' must be 1 to 64 letters"),
        ("redis://h?namespace=", "namespace='' must be 1 to 64 letters"),
        ("redis://h?keep_ended=soon", "can't be understood: keep_ended"),
        ("redis://h?keep_ended=5m", "keep_ended='5m' must be 10m or longer"),
        ("redis://h?socket_timeout=0s", "which is no time at all"),
        ("redis://h?max_connections=0", "must be a whole number from 1 to 99999"),
        ("rediss://h?ssl_check_hostname=maybe", "neither true nor false"),
        ("rediss://h?ssl_cert_reqs=maybe", "none of required, optional and none"),
    ],
)
def test_a_url_that_cannot_be_understood_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        RedisJobTransport.from_url(url)
    assert said in str(refused.value)


@pytest.mark.guarantee("redis.secrets-are-shown-nowhere")
@pytest.mark.parametrize(
    "url",
    [
        f"redis://me:{SECRET}@h:x",
        f"redis://me:{SECRET}@h/one",
        f"redis://:{SECRET}@h,i",
        f"redis+sentinel://h?sentinel_password={SECRET}",
        f"amqp://me:{SECRET}@h",
        f"redis://:pass?{SECRET}@h",
        f"redis+sentinel://:pass?{SECRET}@h/main",
        f"redis+cluster://:pass?namespace={SECRET}@h",
        f"redis://:pa/ss{SECRET}@h",
        f"redis://:pa/ss#{SECRET}@h",
        f"redis://:pa#ss{SECRET}@h",
        f"redis://h?pasword={SECRET}",
        f"redis://h?auth={SECRET}",
        f"redis://h/one?auth={SECRET}",
        f"unix://:pa/{SECRET}@/run/r.sock",
    ],
)
def test_an_error_shows_no_password(url: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        RedisJobTransport.from_url(url)
    assert SECRET not in f"{refused.value} {refused.value!r} {refused.value.value!r}"


@pytest.mark.guarantee("redis.secrets-are-shown-nowhere")
@pytest.mark.parametrize(
    "url",
    [
        f"redis://me:{SECRET}@127.0.0.1:1/2?namespace=shop",
        f"redis+sentinel://me:{SECRET}@127.0.0.1:1/main?namespace=shop&sentinel_password={SECRET}",
        f"rediss+cluster://:{SECRET}@127.0.0.1:1?namespace=shop",
    ],
)
async def test_a_transport_shows_no_password(url: str) -> None:
    async with RedisJobTransport.from_url(url) as transport:
        assert SECRET not in f"{transport!r} {address_of(url)!r} {transport._namespace.client!r}"
        assert "namespace 'shop'" in repr(transport)


@pytest.mark.parametrize("namespace", ["", "a b", "a{b", "x" * 65, "ü"])
def test_a_namespace_is_a_name(namespace: str) -> None:
    with pytest.raises(InvalidSettingError, match="namespace"):
        RedisJobTransport.from_url("redis://h", namespace=namespace)
