"""A throwaway certificate authority for tests of TLS: everything it signs is valid for an hour, on the loopback."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_HOST: Final = "127.0.0.1"
_VALID: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files.

    Attributes:
        certificate: of the server, or of the client.
        key: PKCS 8, not encrypted.
        both: key and certificate in one file, as Kafka takes them.
    """

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates; its own is ``root``, which clients trust.

    Args:
        directory: where all files go; must exist.
        name: tells two authorities of one test apart.
    """

    def __init__(self, directory: Path, name: str = "test") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"{name} authority")
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.root = directory / f"{name}-ca.pem"
        self.root.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    @classmethod
    def stranger(cls, directory: Path) -> Self:
        """Another authority, which signed nothing that a server shows."""
        return cls(directory, "stranger")

    def sign(self, name: str, *, host: str = _HOST) -> Certificate:
        """A certificate for ``name`` (a client's user), and for servers at ``host``: an address or a DNS name."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_named(name), self._name, key)
            .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        files = Certificate(*(self._directory / f"{name}{end}.pem" for end in ("-cert", "-key", "")))
        for path, content in ((files.certificate, pem), (files.key, key_pem), (files.both, key_pem + pem)):
            path.write_bytes(content)
        files.key.chmod(0o600)
        return files


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
