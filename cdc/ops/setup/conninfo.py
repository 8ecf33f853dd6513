"""libpq connection strings: taken apart for their secrets, and put together for somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.base.config.masking import dsn_secrets
from cdc.base.errors import ConfigError

SUPERUSER: Final = "user=postgres"
"""Who may give rights where nobody was named: most servers have this role."""


def without_password(dsn: str, option: str) -> tuple[str, str]:
    """The string without its password, and the password; the string as it was written when it holds none.

    Args:
        dsn: keywords or a URL.
        option: where it was given, for people.

    Raises:
        ConfigError: libpq does not understand it, it names no user, or it holds the passphrase of a certificate.
    """
    try:
        keywords = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # "from None": libpq's text quotes the string, hence perhaps the password
        raise ConfigError(
            f"{option}: libpq does not understand it", remedy="write a URL, or host=… port=… dbname=… user=…"
        ) from None
    if not keywords.get("user"):
        raise ConfigError(f"{option} names no user", remedy="add user=cdc, the role that cdc connects as")
    password = str(keywords.pop("password", ""))
    if not password:
        if dsn_secrets(dsn):
            raise ConfigError(
                f"{option} holds the passphrase of a certificate's key, which the file must not hold",
                remedy="use a key without a passphrase that only cdc may read, and leave sslpassword out",
            )
        return dsn, ""
    return without_password(make_conninfo("", **keywords), option)[0], password


def over(connection: Mapping[str, str], admin: str) -> str:
    """The connection of somebody else to the same database.

    Args:
        connection: arguments for ``make_conninfo`` from the configuration.
        admin: libpq keywords that replace those of the connection.

    Raises:
        ConfigError: it holds a password, or libpq does not understand it.
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
            "--admin or source.dsn: libpq does not understand it", remedy="write keywords such as user=postgres host=db"
        ) from None


def role_of(connection: Mapping[str, str]) -> str:
    """Whom the connection names."""
    return str(conninfo_to_dict(make_conninfo(**connection))["user"])


def user_of(admin: str) -> str:
    """Who, of libpq keywords: the rest of them says where another server is."""
    user = conninfo_to_dict(admin).get("user")
    return make_conninfo("", user=user) if user else SUPERUSER
