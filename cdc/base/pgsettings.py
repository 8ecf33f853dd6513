"""Session settings under which a replica's server reads every text as the value that the source printed.

Roles and databases may have any of these set otherwise (``ALTER ROLE … SET``). Those sent while connecting win over
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

READING: Final[Mapping[str, str]] = {
    "TimeZone": "UTC",
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "postgres",
    # money is read by lc_monetary
    "lc_monetary": "C",
    # off would make the text NULL of the array's element NULL
    "array_nulls": "on",
    # a document is content, too; not the other way round
    "xmloption": "content",
    # keys are compared as they are printed
    "extra_float_digits": "1",
    "bytea_output": "hex",
    # as PostgreSQL's own apply workers have it: no object of a user's schema can be taken for a built-in one
    "search_path": "pg_catalog",
}
"""What a value is. ``client_encoding`` is set as a libpq keyword beside."""

WRITING: Final[Mapping[str, str]] = {
    # many set this to keep people out of the replica: it is not meant for who fills it
    "default_transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
    # a row that a policy hides must be an error: a delete that does not find it would leave it there
    "row_security": "off",
    # a big transaction of the source is one transaction of the replica, however long it takes
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
"""What may come between us and a whole transaction."""

LATER: Final = "SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'"
"""To be run once connected: the setting is of PostgreSQL 17, and older servers refuse to be asked for it."""


def startup_options(settings: Mapping[str, str]) -> str:
    """For libpq's ``options``."""
    escaped = {name: value.replace(" ", r"\ ") for name, value in settings.items()}
    return " ".join(f"-c {name}={value}" for name, value in escaped.items())
