"""By which names a service without tokens may be asked."""

from __future__ import annotations

import pytest

from cdc.base.web.hosts import Hosts
from cdc.base.web.problem import Problem


@pytest.mark.parametrize(
    ("listening", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.2:8090"),
        ("127.0.0.1", "LOCALHOST:8090"),
        ("127.0.0.1", "localhost."),
        ("127.0.0.1", "shop.localhost:80"),
        ("127.0.0.1", "[::1]:8090"),
        ("view.internal", "View.Internal:8090"),
        ("10.0.0.7", "10.0.0.7:8090"),
        ("0.0.0.0", "10.0.0.7:8090"),
        ("::", "[2001:db8::1]"),
    ],
)
def test_names_that_are_ours(listening: str, host: str) -> None:
    Hosts(listening).check([(b"accept", b"*/*"), (b"host", host.encode())])


@pytest.mark.parametrize(
    ("listening", "host"),
    [
        ("127.0.0.1", "evil.example"),
        ("127.0.0.1", "evil.example:8090"),
        ("127.0.0.1", "127.0.0.1.evil.example"),
        ("127.0.0.1", "evillocalhost"),
        ("127.0.0.1", "10.0.0.7"),
        ("127.0.0.1", "127.0.0.1:80:evil.example"),
        ("127.0.0.1", ""),
        ("127.0.0.1", "evil.example\xff"),
        ("0.0.0.0", "evil.example"),
        ("view.internal", "other.internal"),
    ],
)
def test_names_that_are_not(listening: str, host: str) -> None:
    with pytest.raises(Problem) as caught:
        Hosts(listening).check([(b"host", host.encode("latin-1"))])
    assert (caught.value.status, caught.value.kind) == (421, "foreign-host")


def test_two_names_at_once() -> None:
    with pytest.raises(Problem):
        Hosts("127.0.0.1").check([(b"host", b"localhost"), (b"host", b"evil.example")])


def test_a_request_without_a_name() -> None:
    Hosts("127.0.0.1").check([])
