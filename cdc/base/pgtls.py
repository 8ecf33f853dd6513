"""Translates libpq's messages about TLS into what the operator has to change. No I/O.

Bridge and sink share this. Such an error is not an outage: no retry changes a certificate.

https://www.postgresql.org/docs/current/libpq-ssl.html
"""

from __future__ import annotations

from typing import Final

_OUR_CERTIFICATE: Final = (
    "set sslcert and sslkey in {dsn} to a certificate whose issuer is in the server's ssl_ca_file, "
    "and whose name pg_hba.conf allows for this user"
)

# The first match counts: "root certificate file" also contains "certificate file".
_REFUSALS: Final = (
    (
        ("certificate verify failed",),
        "set sslrootcert in {dsn} to the file with the authority that signed the server's certificate "
        "(sslrootcert=system: the authorities of this machine), and check that the certificate has not expired",
    ),
    (
        ("does not match host name",),
        "write the host in {dsn} as it is in the server's certificate (hostaddr=… may give the address as well), "
        "or have a certificate issued for this host",
    ),
    (
        ("does not support SSL",),
        "set ssl = on in the server's postgresql.conf, or, if nobody can intercept the connection, "
        "sslmode=disable in {dsn}",
    ),
    (
        ("root certificate file", "sslrootcert=system"),
        "set sslrootcert in {dsn} to a readable file with the authority that signed the server's certificate, "
        "or to system with sslmode=verify-full",
    ),
    (("invalid sslmode value",), "set sslmode in {dsn} to verify-full, verify-ca, require or disable"),
    (
        ("private key file", "certificate file"),
        "set sslcert and sslkey in {dsn} to readable files that belong together; the key may be readable only by "
        "the account of this process (chmod 600)",
    ),
    (
        (
            "requires a valid client certificate",
            "certificate authentication failed",
            "alert unknown ca",
            "alert bad certificate",
            "alert certificate expired",
        ),
        _OUR_CERTIFICATE,
    ),
    (
        (", no encryption",),
        "if pg_hba.conf has only hostssl lines for this user: sslmode=verify-full and sslrootcert in {dsn}; "
        "otherwise add a line for this user, database and address to pg_hba.conf, then: SELECT pg_reload_conf();",
    ),
)


def tls_remedy(said: str, dsn: str) -> str | None:
    """Returns what to change after a connection failed because of TLS; None if the message is about something else.

    It recognises only English messages.

    Args:
        said: libpq's message.
        dsn: the configuration key that holds the connection string.
    """
    return next((remedy.format(dsn=dsn) for words, remedy in _REFUSALS if any(word in said for word in words)), None)
