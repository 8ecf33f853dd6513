"""Takes secrets out of libpq connection strings, and builds the connection string of another user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.base.config.masking import dsn_secrets
from cdc.base.errors import ConfigError

SUPERUSER: Final = "user=postgres"
"""The user who grants rights if none was named: most servers have this role."""


def without_password(dsn: str, option: str) -> tuple[str, str]:
    """Split a connection string into the string without its password, and the password.

    A string without a password is returned as it was written.

    Args:
        dsn: keywords or a URL.
        option: the option that it came from, for messages.

    Raises:
        ConfigError: libpq does not understand the string, it names no user, or it holds a certificate's passphrase.
    """
    try:
        keywords = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # "from None", because libpq's message quotes the string, which may hold a password
        raise ConfigError(
            f"{option}: invalid connection string", remedy="write a URL, or host=… port=… dbname=… user=…"
        ) from None
    if not keywords.get("user"):
        raise ConfigError(f"{option} names no user", remedy="add user=cdc, the role that cdc connects as")
    password = str(keywords.pop("password", ""))
    if not password:
        if dsn_secrets(dsn):
            raise ConfigError(
                f"{option} contains the passphrase of a certificate's key, which must not be in the file",
                remedy="use a key without a passphrase that only cdc may read, and leave sslpassword out",
            )
        return dsn, ""
    return without_password(make_conninfo("", **keywords), option)[0], password


def over(connection: Mapping[str, str], admin: str) -> str:
    """Returns the connection string of another user to the same database.

    Args:
        connection: arguments for ``make_conninfo`` from the configuration.
        admin: libpq keywords that replace those of the connection.

    Raises:
        ConfigError: ``admin`` contains a password, or libpq does not understand it.
    """
    if dsn_secrets(admin):
        raise ConfigError(
            "--admin: everybody on this machine can see a password on the command line",
            remedy="put it into PGPASSWORD or ~/.pgpass",
        )
    try:
        ours, theirs = conninfo_to_dict(make_conninfo(**connection)), conninfo_to_dict(admin)
        return make_conninfo("", **{**ours, "password": None, **theirs})
    except psycopg.ProgrammingError:
        raise ConfigError(
            "--admin or source.dsn: invalid connection string", remedy="write keywords such as user=postgres host=db"
        ) from None


def role_of(connection: Mapping[str, str]) -> str:
    """Returns the user that the connection names."""
    return str(conninfo_to_dict(make_conninfo(**connection))["user"])


def user_of(admin: str) -> str:
    """Returns only the ``user`` of libpq keywords: the other keywords are for another server."""
    user = conninfo_to_dict(admin).get("user")
    return make_conninfo("", user=user) if user else SUPERUSER
