"""A PostgreSQL role that a connection string names: who it is, and the SQL that makes it."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.base.errors import ConfigError


def role_lines(role: str, attributes: str) -> list[str]:
    """Make a role unless it is there, with these attributes; it gets no password here, for that would be seen."""
    name = '"' + role.replace('"', '""') + '"'
    return [
        "DO $$ BEGIN",
        f"  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = {sql.Literal(role).as_string(None)}) THEN",
        f"    CREATE ROLE {name};",
        "  END IF;",
        "END $$;",
        f"ALTER ROLE {name} {attributes};",
        comment(f"and its password, in psql: \\password {name}"),
    ]


def comment(text: str) -> str:
    """A line of SQL that does nothing; names in it may hold line feeds, behind which it would do something."""
    return f"-- {' '.join(text.splitlines())}"


def role_and_database(section: str, arguments: Mapping[str, str]) -> tuple[str, str]:
    """Whom and which database a connection string names.

    Args:
        section: of the configuration, for people.
        arguments: for ``psycopg.conninfo.make_conninfo`` from the configuration.

    Raises:
        ConfigError: libpq does not understand it, or it names no user.
    """
    try:
        keywords = conninfo_to_dict(make_conninfo(**arguments))
    except psycopg.ProgrammingError:
        raise ConfigError(
            f"{section}.dsn: libpq does not understand it",
            remedy="write a URL, or host=… port=… dbname=… user=… (libpq's keyword list has the others)",
        ) from None
    user = keywords.get("user")
    if not user:
        raise ConfigError(f"{section}.dsn names no user to give rights to", remedy=f"add user=cdc to {section}.dsn")
    return str(user), str(keywords.get("dbname") or user)
