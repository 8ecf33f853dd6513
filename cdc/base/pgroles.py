"""Finds the role that a connection string names, and writes the SQL that creates it."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.base.errors import ConfigError


def role_lines(role: str, attributes: str) -> list[str]:
    """Returns SQL that creates a role, if needed, with these attributes; without a password, which would be visible."""
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
    """Returns a comment line of SQL. Names in it may hold line feeds, and what follows those would be executed."""
    return f"-- {' '.join(text.splitlines())}"


def role_and_database(section: str, arguments: Mapping[str, str]) -> tuple[str, str]:
    """Returns the user and the database that a connection string names.

    Args:
        section: the section of the configuration, for errors.
        arguments: arguments for ``psycopg.conninfo.make_conninfo``, from the configuration.

    Raises:
        ConfigError: libpq does not understand the string, or it names no user.
    """
    try:
        keywords = conninfo_to_dict(make_conninfo(**arguments))
    except psycopg.ProgrammingError:
        raise ConfigError(
            f"{section}.dsn: invalid connection string",
            remedy="write a URL, or host=… port=… dbname=… user=… (libpq's manual lists all keywords)",
        ) from None
    user = keywords.get("user")
    if not user:
        raise ConfigError(f"{section}.dsn names no user to give rights to", remedy=f"add user=cdc to {section}.dsn")
    return str(user), str(keywords.get("dbname") or user)
