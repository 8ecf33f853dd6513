"""Logging in by hand: what is sent, what is refused; the exchange of RFC 7677 as it is printed there."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from cdc.base.errors import TopicRefused
from cdc.kafka import door

SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


class Broker:
    """Answers as it is told to, and remembers the tokens."""

    def __init__(self, *answers: bytes, handshake: int = 0, refusal: str = "") -> None:
        self.tokens: list[bytes] = []
        self._answers, self._handshake, self._refusal = list(answers), handshake, refusal

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        if api == 17:
            return struct.pack(">hi", self._handshake, 0)
        self.tokens.append(body[4:])
        if self._refusal:
            return struct.pack(">hh", 58, len(self._refusal)) + self._refusal.encode() + struct.pack(">i", -1)
        answer = self._answers.pop(0)
        return struct.pack(">hhi", 0, -1, len(answer)) + answer


def options(mechanism: str, **more: Any) -> dict[str, Any]:
    user = {"sasl.username": "user", "sasl.password": "pencil"}
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **user, **more}


@pytest.fixture
def _nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "rOprNGfwEbeRWgbNEkqO")


@pytest.mark.usefixtures("_nonce")
def test_scram_as_the_rfc_prints_it() -> None:
    broker = Broker(SERVER_FIRST, SERVER_FINAL)

    door.authenticate(broker.ask, options("SCRAM-SHA-256"))

    assert broker.tokens == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


@pytest.mark.usefixtures("_nonce")
@pytest.mark.parametrize(
    "answers", [(SERVER_FIRST, b"v=AAAA"), (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",), (b"nonsense",)]
)
def test_a_server_that_is_not_the_one_is_refused(answers: tuple[bytes, ...]) -> None:
    with pytest.raises(TopicRefused):
        door.authenticate(Broker(*answers).ask, options("SCRAM-SHA-256"))


def test_plain() -> None:
    broker = Broker(b"")

    door.authenticate(broker.ask, options("PLAIN"))

    assert broker.tokens == [b"\0user\0pencil"]


def test_a_wrong_password_is_told_with_the_brokers_words() -> None:
    with pytest.raises(TopicRefused, match="Authentication failed") as caught:
        door.authenticate(Broker(refusal="Authentication failed").ask, options("PLAIN"))
    assert "kafka.password" in caught.value.remedy


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", ""])
def test_what_only_the_client_library_speaks(mechanism: str) -> None:
    with pytest.raises(TopicRefused, match="cannot log in"):
        door.authenticate(Broker().ask, options(mechanism))


def test_a_mechanism_that_the_broker_lacks() -> None:
    with pytest.raises(TopicRefused, match="does not offer"):
        door.authenticate(Broker(handshake=33).ask, options("PLAIN"))


def test_nobody_logs_in_where_nobody_has_to() -> None:
    broker = Broker()
    door.authenticate(broker.ask, {"security.protocol": "ssl"})
    assert broker.tokens == []
