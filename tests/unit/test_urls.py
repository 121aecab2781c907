"""What a url says of where a fleet is."""

from __future__ import annotations

import pytest

from tocsin.broker.urls import Node, Shape, check, parse


def test_a_cluster_is_some_of_its_nodes():
    """Each connection has the user, password and options of the url."""
    place = parse("rediss+cluster://ann:p%40ss@a:7000,[::1]:7001,c.example?ssl_ca_certs=/ca.pem")
    assert place.shape is Shape.CLUSTER
    assert place.nodes == (Node("a", 7000), Node("::1", 7001), Node("c.example", 6379))
    assert place.url_of(Node("::1", 9)) == "rediss://ann:p%40ss@[::1]:9/0?ssl_ca_certs=%2Fca.pem"
    assert place.name == "rediss+cluster://[::1]:7001,a:7000,c.example:6379"
    assert place.secrets == {"p%40ss"}


def test_sentinels_have_a_primary_a_database_and_passwords_of_their_own():
    """What the fleet's server asks for is not shown to the Sentinels, nor the other way round."""
    place = parse("redis+sentinel://ann:pw@main@a:1,b/3?sentinel_password=s%2F&protocol=3")
    assert (place.shape, place.master) == (Shape.SENTINEL, "main")
    assert place.nodes == (Node("a", 1), Node("b", 26379))
    assert place.url_of(Node("p", 5)) == "redis://ann:pw@p:5/3?protocol=3"
    assert place.url_of_sentinel(Node("a", 1)) == "redis://:s%2F@a:1/0?protocol=3"
    assert place.name == "redis+sentinel://main@a:1,b:26379/3"
    assert place.secrets == {"pw", "s/"}
    assert parse("redis+sentinel://main@a").url_of_sentinel(Node("a", 1)) == "redis://a:1/0"


@pytest.mark.parametrize("url", ["redis://u:pw@h:1/2?x=y", "rediss://h", "unix:///run/s"])
def test_one_server_is_left_to_redis_py(url):
    """Its url is used as it was written."""
    place = parse(url)
    assert place.shape is Shape.SINGLE and place.url_of(Node("", 0)) == url
    assert check(url) == url


def test_a_password_may_be_an_option_too():
    """redis-py takes it from there; it is as secret as before the host."""
    place = parse("redis://ann:pw@h:1/0?protocol=3&password=p%40ss")
    assert place.secrets == {"pw", "p%40ss"}
    assert parse("redis://h/0?protocol=3").secrets == set()


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster://a:1/1",
        "redis+cluster://a:0",
        "redis+cluster://a:65536",
        "redis+cluster://a:1,",
        "redis+cluster://a:1#x",
        "redis+cluster://u:pw@a b",
        "redis+sentinel://a:1",
        "redis+sentinel://u:pw@a:1",
        "redis+sentinel://main@a:1/x",
        "redis+tls://a",
        "unix+cluster://a",
        "redis://",
        "http://a",
    ],
)
def test_what_is_no_place_is_no_setting(url):
    """Refused with nothing of it in the error."""
    with pytest.raises(ValueError) as refused:
        check(url)
    assert "pw" not in str(refused.value)


def test_a_place_shows_no_secret():
    """Not in a log that shows the object either."""
    assert "pw" not in repr(parse("redis+sentinel://u:pw@main@a?sentinel_password=pw"))
