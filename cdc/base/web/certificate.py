"""The certificate of a service, which is renewed while it runs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from cdc.base.errors import ConfigError

_Stamp: TypeAlias = tuple[int, int]

log = structlog.get_logger("cdc.web")


class Certificate:
    """Two files. Connections that are open keep the certificate that they began with.

    Args:
        cert: PEM file of the certificate and its chain.
        key: PEM file of its key.
    """

    def __init__(self, cert: str, key: str) -> None:
        self._cert: Final = cert
        self._key: Final = key
        self._seen = self._stamps()

    def check(self) -> None:
        """Whether a server can use them.

        Raises:
            ConfigError: names the files.
        """
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"serve.tls_cert {self._cert} and serve.tls_key {self._key} cannot be used: {error}",
                remedy="both are PEM files, and the key is the certificate's",
            ) from error

    def refresh(self, context: ssl.SSLContext) -> None:
        """Give a server the files again if they changed. Files that are wrong, or not both new yet, change nothing."""
        if (stamps := self._stamps()) == self._seen:
            return
        self._seen = stamps
        try:
            self.check()
            context.load_cert_chain(self._cert, self._key)
        except (ConfigError, OSError) as error:
            log.error(
                "the certificate stays as it was",
                error=str(error),
                remedy="correct the files: they are looked at again by themselves",
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
