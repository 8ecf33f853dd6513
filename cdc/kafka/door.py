"""Connects and logs in to a broker without the client library: TLS and SASL by librdkafka's options."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from cdc.base.errors import TopicRefused

Ask: TypeAlias = Callable[[int, int, bytes], bytes]
"""Sends a request (API key, version, body) and returns the answer."""

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def open_socket(host: str, port: int, options: Mapping[str, Any], *, timeout_s: float) -> socket.socket:
    """Opens a connection, with TLS if ``security.protocol`` asks for it.

    Raises:
        OSError: nobody answers, or TLS does not trust the broker.
    """
    plain = socket.create_connection((host, port), timeout=timeout_s)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if "ssl" not in str(options.get("security.protocol", "plaintext")).lower():
        return plain
    try:
        return _tls(options).wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def _tls(options: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    # With "probe", librdkafka looks for the system's certificates, which the default context has loaded
    if (authority := options.get("ssl.ca.location")) and authority != "probe":
        where = Path(str(authority))
        context.load_verify_locations(**{"capath" if where.is_dir() else "cafile": str(where)})
    if "ssl.ca.pem" in options:
        context.load_verify_locations(cadata=str(options["ssl.ca.pem"]))
    context.check_hostname = str(options.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    if str(options.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := options.get("ssl.certificate.location"):
        context.load_cert_chain(
            str(certificate), options.get("ssl.key.location"), options.get("ssl.key.password") or None
        )
    return context


def authenticate(ask: Ask, options: Mapping[str, Any]) -> None:
    """Logs in with SASL if ``security.protocol`` asks for it.

    Raises:
        TopicRefused: the name or the password is wrong, or the mechanism is not supported here.
    """
    if "sasl" not in str(options.get("security.protocol", "plaintext")).lower():
        return
    mechanism = str(options.get("sasl.mechanism", options.get("sasl.mechanisms", ""))).upper()
    if mechanism != "PLAIN" and mechanism not in _HASHES:
        raise TopicRefused(
            f"this asks brokers for what Kafka's client library does not tell, and cannot log in with sasl.mechanism "
            f"{mechanism or 'GSSAPI'}",
            remedy="use a listener with SCRAM or PLAIN, for instance with another -c file",
        )
    name, password = str(options.get("sasl.username", "")), str(options.get("sasl.password", ""))
    encoded = mechanism.encode()
    answer = ask(_HANDSHAKE, 1, struct.pack(">h", len(encoded)) + encoded)
    if struct.unpack_from(">h", answer)[0]:
        raise TopicRefused(f"the broker does not offer sasl.mechanism {mechanism}", remedy="correct sasl.mechanism")
    if mechanism == "PLAIN":
        _exchange(ask, f"\0{name}\0{password}".encode())
    else:
        _scram(ask, _HASHES[mechanism], name, password)


def _scram(ask: Ask, algorithm: str, name: str, password: str) -> None:
    """Logs in with SCRAM (RFC 5802), without channel binding."""
    nonce = secrets.token_urlsafe(18)
    first = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = _exchange(ask, f"n,,{first}".encode()).decode()
    told = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
    if not {"r", "s", "i"} <= told.keys() or not told["r"].startswith(nonce):
        raise TopicRefused("the broker's SCRAM challenge is not valid", remedy="is it a Kafka broker?")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(told["s"]), int(told["i"]))
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    final = f"c=biws,r={told['r']}"
    signed = f"{first},{challenge},{final}".encode()
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    verifier = _exchange(ask, f"{final},p={proof}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if verifier.partition("v=")[2].partition(",")[0] != base64.b64encode(expected).decode():
        raise TopicRefused(
            "the broker let us in, but its SCRAM signature shows that it does not know our password",
            remedy="is the broker yours?",
        )


def _exchange(ask: Ask, token: bytes) -> bytes:
    answer = ask(_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    error, size = struct.unpack_from(">hh", answer)
    place = 4 + max(size, 0)
    if error:
        raise TopicRefused(
            f"Kafka refused the connection: {answer[4:place].decode()}",
            remedy="correct sasl.username under kafka.options, and kafka.password or kafka.password_file",
        )
    (length,) = struct.unpack_from(">i", answer, place)
    return answer[place + 4 : place + 4 + max(length, 0)]
