"""The certificate of a service; it may be renewed while the service runs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from cdc.base.errors import ConfigError

_Stamp: TypeAlias = tuple[int, int]

log = structlog.get_logger("cdc.web")


class Certificate:
    """A certificate and its key in two files. Open connections keep the certificate that they began with.

    Args:
        cert: PEM file of the certificate and its chain.
        key: PEM file of the certificate's key.
    """

    def __init__(self, cert: str, key: str) -> None:
        self._cert: Final = cert
        self._key: Final = key
        self._seen = self._stamps()

    def check(self) -> None:
        """Check that a server can use the files.

        Raises:
            ConfigError: it cannot; names the files.
        """
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"cannot use serve.tls_cert {self._cert} and serve.tls_key {self._key}: {error}",
                remedy="give two PEM files: the certificate with its chain, and the key of that certificate",
            ) from error

    def refresh(self, context: ssl.SSLContext) -> None:
        """Load the files into a server's context again if they changed; if they are wrong, the old ones stay in use."""
        if (stamps := self._stamps()) == self._seen:
            return
        self._seen = stamps
        try:
            self.check()
            context.load_cert_chain(self._cert, self._key)
        except (ConfigError, OSError) as error:
            log.error(
                "cannot load the new certificate, so the service keeps the old one",
                error=str(error),
                remedy="correct the files: the service notices by itself when they change",
            )
        else:
            log.info("read the certificate again", file=self._cert)

    def _stamps(self) -> tuple[_Stamp | None, ...]:
        return _stamp(self._cert), _stamp(self._key)


def _stamp(path: str) -> _Stamp | None:
    try:
        said = Path(path).stat()
    except OSError:
        return None
    return said.st_mtime_ns, said.st_ino
