"""What to do next, as lines for a shell: commands that can be pasted, and comments that begin with #. No I/O."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from psycopg.conninfo import conninfo_to_dict

from cdc.base.config import Config
from cdc.bridge.scope.acls import kafka_grants
from cdc.bridge.source.preflight import Finding
from cdc.contract.pgtypes import quote_identifier
from cdc.ops.setup.answers import Answers
from cdc.ops.setup.conninfo import SUPERUSER, over, user_of
from cdc.ops.setup.replica_side import SeenReplica
from cdc.ops.setup.seen import ServersSeen, printable
from cdc.ops.setup.source_side import SeenSource


def steps(path: Path, answers: Answers, config: Config, seen: ServersSeen) -> Iterator[str]:
    """Yields the next commands in order, with comments between them.

    Args:
        path: the configuration file.
        answers: the person's answers.
        config: the content of the file.
        seen: what the servers have and lack.
    """
    file = shlex.quote(str(path))
    admin = answers.admin or SUPERUSER
    if seen.source is None or seen.kafka is None:
        yield "# cdc init did not look at the servers. This command names everything that is missing:"
        yield f"cdc check -c {file}"
        return
    yield from _mend(seen.source)
    for variable in answers.passwords:
        yield f"# The password that you gave is not in the file: set {variable}."
    if seen.source.lacks_rights:
        as_admin = f" --admin {shlex.quote(admin)}" if seen.source.is_new else ""
        psql = _psql(over({"conninfo": answers.source}, admin))
        yield "# Create the bridge's role and its publication. To review the SQL first, leave out `| psql …`."
        yield f"cdc grants source -c {file}{as_admin} | {psql}"
        if seen.source.is_new:
            yield from _password(seen.source.role, psql, "CDC_SOURCE__PASSWORD")
    if seen.replica is not None and seen.replica.lacks_rights:
        as_admin = f" --admin {shlex.quote(admin)}" if seen.source.is_new else ""
        yield from _sink(seen.replica, answers.replica, user_of(admin), f"cdc grants sink -c {file}{as_admin}")
    if _is_secured(config):
        yield "# admin.properties has the settings that your Kafka administrator connects with."
        yield from kafka_grants(config)
    yield "# Check that everything is in place."
    yield f"cdc check -c {file}"
    yield "# Run the bridge, from PostgreSQL to topics. It runs until SIGTERM."
    yield f"cdc run -c {file}"
    if answers.replica:
        yield "# At the same time, run the sink, from topics to the replica. It runs until SIGTERM."
        yield f"cdc sink -c {file}"
    yield "# See how far they are."
    yield f"cdc status -c {file}"


_RIGHTS: Final = (
    "GRANT ",
    "CREATE ROLE ",
    "ALTER ROLE ",
    "CREATE PUBLICATION ",
    "ALTER PUBLICATION ",
    "CREATE SCHEMA ",
)
"""Beginnings of remedies that are part of the output of ``cdc grants``."""


def rights(path: Path | None, config: Config, parts: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    """Yields the commands that grant all missing rights at once; nothing if ``cdc check`` found none missing.

    Args:
        path: the configuration file as the person named it; None for the file that commands find by themselves.
        config: the content of the file.
        parts: the findings of ``cdc check``.
    """
    file = "" if path is None else f" -c {shlex.quote(str(path))}"
    lacking = {
        part: [each for each in found if each.level == "FAIL" and each.remedy.startswith(_RIGHTS)]
        for part, found in parts.items()
    }
    # A role that cannot connect cannot read the catalog either, so another user has to print the grants.
    as_admin = f" --admin {SUPERUSER}" if any(each.subject == "connection" for each in lacking["source"]) else ""
    if lacking["source"]:
        yield f"cdc grants source{file}{as_admin} | {_psql(over(config.source.connection(), SUPERUSER))}"
    if lacking["sink"] and config.sink is not None:
        yield f"cdc grants sink{file}{as_admin} | {_psql(over(config.sink.connection(), SUPERUSER))}"


def _sink(replica: SeenReplica, dsn: str, admin: str, grants: str) -> Iterator[str]:
    """Yields the commands for the sink's role, and for the database if it is missing."""
    psql = _psql(over({"conninfo": dsn}, admin))
    if replica.lacks_database:
        keywords = conninfo_to_dict(dsn)
        name = str(keywords.get("dbname") or keywords["user"])
        elsewhere = _psql(over({"conninfo": dsn}, f"{admin} dbname=postgres"))
        yield "# Create the replica's database, which does not exist yet."
        yield f"{elsewhere} -c {shlex.quote(f'CREATE DATABASE {quote_identifier(name)}')}"
    yield "# Create the sink's role, and the schemas for its tables."
    yield f"{grants} | {psql}"
    if replica.refusal:
        yield from _password(replica.role, psql, "CDC_SINK__PASSWORD")


def _mend(source: SeenSource) -> Iterator[str]:
    """Yields what must be fixed first and is not about rights, such as a server setting or a version."""
    server = [each for each in source.troubles if each.level == "FAIL" and not each.subject.startswith("table ")]
    if server:
        yield "# First, at the source:"
    for each in server:
        yield f"#   {printable(each.subject)}: {printable(each.text)}"
        yield f"#     {printable(each.remedy)}"


def _password(role: str, psql: str, variable: str) -> Iterator[str]:
    yield f"# Give the role a password, unless it can log in without one. The command asks for it; then set {variable}."
    command = rf"\password {quote_identifier(role)}"
    yield f"{psql} -c {shlex.quote(command)}"


def _psql(conninfo: str) -> str:
    return f"psql -v ON_ERROR_STOP=1 {shlex.quote(conninfo)}"


def _is_secured(config: Config) -> bool:
    return str(config.kafka.options.get("security.protocol", "plaintext")).lower() != "plaintext"
