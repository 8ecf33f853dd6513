"""What to do next, as lines for a shell: all that stands in a line of its own without # can be pasted. No I/O."""

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
    """Commands in their order, comments between them.

    Args:
        path: of the file.
        answers: of the person.
        config: that the file holds.
        seen: what the servers have and lack.
    """
    file = shlex.quote(str(path))
    admin = answers.admin or SUPERUSER
    if seen.source is None or seen.kafka is None:
        yield "# Nobody has looked at the servers. This names everything that is missing:"
        yield f"cdc check -c {file}"
        return
    yield from _mend(seen.source)
    for variable in answers.passwords:
        yield f"# The password that you gave is not in the file: set {variable}."
    if seen.source.lacks_rights:
        as_admin = f" --admin {shlex.quote(admin)}" if seen.source.is_new else ""
        psql = _psql(over({"conninfo": answers.source}, admin))
        yield "# The bridge's role and its publication. Without `| psql …` it only prints the SQL, to be reviewed."
        yield f"cdc grants source -c {file}{as_admin} | {psql}"
        if seen.source.is_new:
            yield from _password(seen.source.role, psql, "CDC_SOURCE__PASSWORD")
    if seen.replica is not None and seen.replica.lacks_rights:
        as_admin = f" --admin {shlex.quote(admin)}" if seen.source.is_new else ""
        yield from _sink(seen.replica, answers.replica, user_of(admin), f"cdc grants sink -c {file}{as_admin}")
    if _is_secured(config):
        yield "# admin.properties is how your administrator connects."
        yield from kafka_grants(config)
    yield "# Is everything in place?"
    yield f"cdc check -c {file}"
    yield "# The bridge, until SIGTERM: PostgreSQL to topics."
    yield f"cdc run -c {file}"
    if answers.replica:
        yield "# The sink, until SIGTERM, beside it: topics to the replica."
        yield f"cdc sink -c {file}"
    yield "# How far they are."
    yield f"cdc status -c {file}"


_RIGHTS: Final = (
    "GRANT ",
    "CREATE ROLE ",
    "ALTER ROLE ",
    "CREATE PUBLICATION ",
    "ALTER PUBLICATION ",
    "CREATE SCHEMA ",
)
"""How a remedy begins that is part of what ``cdc grants`` prints."""


def rights(path: Path | None, config: Config, parts: Mapping[str, Sequence[Finding]]) -> Iterator[str]:
    """The commands that give all rights at once that ``cdc check`` found missing; nothing when none is missing.

    Args:
        path: of the file, as the person named it; None for the one that commands find by themselves.
        config: what it holds.
        parts: the findings.
    """
    file = "" if path is None else f" -c {shlex.quote(str(path))}"
    lacking = {
        part: [each for each in found if each.level == "FAIL" and each.remedy.startswith(_RIGHTS)]
        for part, found in parts.items()
    }
    # A role that cannot connect cannot look at the tables either: the grants are printed by somebody who can.
    as_admin = f" --admin {SUPERUSER}" if any(each.subject == "connection" for each in lacking["source"]) else ""
    if lacking["source"]:
        yield f"cdc grants source{file}{as_admin} | {_psql(over(config.source.connection(), SUPERUSER))}"
    if lacking["sink"] and config.sink is not None:
        yield f"cdc grants sink{file}{as_admin} | {_psql(over(config.sink.connection(), SUPERUSER))}"


def _sink(replica: SeenReplica, dsn: str, admin: str, grants: str) -> Iterator[str]:
    """What the sink's role needs; the database itself, where it is missing."""
    psql = _psql(over({"conninfo": dsn}, admin))
    if replica.lacks_database:
        keywords = conninfo_to_dict(dsn)
        name = str(keywords.get("dbname") or keywords["user"])
        elsewhere = _psql(over({"conninfo": dsn}, f"{admin} dbname=postgres"))
        yield "# The replica's database is not there yet."
        yield f"{elsewhere} -c {shlex.quote(f'CREATE DATABASE {quote_identifier(name)}')}"
    yield "# The sink's role, and the schemas that it makes tables in."
    yield f"{grants} | {psql}"
    if replica.refusal:
        yield from _password(replica.role, psql, "CDC_SINK__PASSWORD")


def _mend(source: SeenSource) -> Iterator[str]:
    """What no right mends: a setting of the server, a version."""
    server = [each for each in source.troubles if each.level == "FAIL" and not each.subject.startswith("table ")]
    if server:
        yield "# First, at the source:"
    for each in server:
        yield f"#   {printable(each.subject)}: {printable(each.text)}"
        yield f"#     {printable(each.remedy)}"


def _password(role: str, psql: str, variable: str) -> Iterator[str]:
    yield f"# The role's password, unless the server lets it in without one. It asks; then set {variable}."
    command = rf"\password {quote_identifier(role)}"
    yield f"{psql} -c {shlex.quote(command)}"


def _psql(conninfo: str) -> str:
    return f"psql -v ON_ERROR_STOP=1 {shlex.quote(conninfo)}"


def _is_secured(config: Config) -> bool:
    return str(config.kafka.options.get("security.protocol", "plaintext")).lower() != "plaintext"
