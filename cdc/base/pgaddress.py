"""What a DSN says in libpq's keywords, and whom it means, in words that hold no secret. No I/O; both sides share it.

https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.base.errors import ConfigError

DEFAULTS: Final[Mapping[str, str]] = {
    # libpq waits for ever by itself; ten seconds is longer than any healthy handshake and shorter than patience
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""Keywords for a server that is gone without a word, where the DSN says nothing else."""


def keywords_of(connection: Mapping[str, str], setting: str) -> dict[str, str]:
    """The keywords that arguments for ``make_conninfo`` come to.

    Args:
        connection: the arguments, from the configuration.
        setting: where they stand there, for an error: ``source.dsn``.

    Raises:
        ConfigError: libpq does not understand them.
    """
    try:
        return {name: str(value) for name, value in conninfo_to_dict(make_conninfo(**connection)).items()}
    except psycopg.ProgrammingError:
        # "from None": libpq's text quotes the connection string, hence perhaps the password
        raise ConfigError(
            f"{setting}: libpq does not understand it",
            remedy="write a URL, or host=… port=… dbname=… user=… (libpq's keyword list has the others)",
        ) from None


def patience(keywords: Mapping[str, str]) -> str:
    """How long we are going to wait for a connection, for people: libpq counts it anew for each address of a name."""
    seconds = {**DEFAULTS, **keywords}["connect_timeout"]
    return "without a limit (connect_timeout=0)" if seconds.strip() in ("0", "") else f"up to {seconds} s an address"


def address(keywords: Mapping[str, str]) -> str:
    """``user@host:port/database``, for people; never a secret."""
    host = keywords.get("host") or keywords.get("hostaddr") or "localhost"
    user = keywords.get("user", "…")
    return f"{user}@{host}:{keywords.get('port', '5432')}/{keywords.get('dbname', user)}"
