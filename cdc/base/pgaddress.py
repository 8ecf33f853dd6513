"""Reads a DSN as libpq's keywords, and describes its server without showing a secret. No I/O; used for both databases.

https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.base.errors import ConfigError

DEFAULTS: Final[Mapping[str, str]] = {
    # By default, libpq waits for ever. Ten seconds are longer than any healthy handshake, and short enough for a person
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""Keywords that detect a server which disappeared silently; those in the DSN take precedence."""


def keywords_of(connection: Mapping[str, str], setting: str) -> dict[str, str]:
    """Returns the libpq keywords in arguments for ``make_conninfo``.

    Args:
        connection: the arguments, from the configuration.
        setting: the configuration key, for an error: ``source.dsn``.

    Raises:
        ConfigError: libpq does not understand the arguments.
    """
    try:
        return {name: str(value) for name, value in conninfo_to_dict(make_conninfo(**connection)).items()}
    except psycopg.ProgrammingError:
        # "from None": libpq's text quotes the connection string, which may contain the password
        raise ConfigError(
            f"{setting}: invalid connection string",
            remedy="write a URL, or host=… port=… dbname=… user=… (libpq's manual lists all keywords)",
        ) from None


def patience(keywords: Mapping[str, str]) -> str:
    """Says how long we will wait for a connection; libpq applies the limit to each address of a host name."""
    seconds = {**DEFAULTS, **keywords}["connect_timeout"]
    return "without a limit (connect_timeout=0)" if seconds.strip() in ("0", "") else f"up to {seconds} s an address"


def address(keywords: Mapping[str, str]) -> str:
    """Returns ``user@host:port/database`` for messages; it contains no secret."""
    host = keywords.get("host") or keywords.get("hostaddr") or "localhost"
    user = keywords.get("user", "…")
    return f"{user}@{host}:{keywords.get('port', '5432')}/{keywords.get('dbname', user)}"
