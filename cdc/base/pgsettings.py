"""Session settings with which a replica's server reads every text as the value that the source printed.

Roles and databases may have other values for them (``ALTER ROLE … SET``). Settings that are sent while connecting
override these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

READING: Final[Mapping[str, str]] = {
    "TimeZone": "UTC",
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "postgres",
    # decides how money is read
    "lc_monetary": "C",
    # off would read an array's element NULL as the text "NULL"
    "array_nulls": "on",
    # content accepts documents as well, but document does not accept content
    "xmloption": "content",
    # keys are compared in their printed form
    "extra_float_digits": "1",
    "bytea_output": "hex",
    # as in PostgreSQL's own apply workers: no object in a user's schema can take the place of a built-in one
    "search_path": "pg_catalog",
}
"""Settings that decide what a text means. ``client_encoding`` is set separately, as a libpq keyword."""

WRITING: Final[Mapping[str, str]] = {
    # often set on a replica to keep people from writing, which must not stop the sink
    "default_transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
    # a row hidden by a policy must cause an error, or a delete would silently leave it
    "row_security": "off",
    # a large source transaction is one replica transaction, however long it takes
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
"""Settings that could otherwise keep us from writing a whole transaction."""

LATER: Final = "SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'"
"""Run this after connecting: the setting exists from PostgreSQL 17 on, and older servers refuse it at the start."""


def startup_options(settings: Mapping[str, str]) -> str:
    """Returns settings in the form of libpq's ``options`` keyword."""
    escaped = {name: value.replace(" ", r"\ ") for name, value in settings.items()}
    return " ".join(f"-c {name}={value}" for name, value in escaped.items())
