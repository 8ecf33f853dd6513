"""Writes the SQL that gives a role the rights to capture tables, and no more than these. No I/O.

For least privilege, the tables' owner makes the publication: PostgreSQL lets nobody else put a table into one, and an
owner may do anything with the table.

https://www.postgresql.org/docs/current/logical-replication-security.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cdc.base.pgroles import comment, role_lines
from cdc.bridge.source.publication import (
    Mode,
    PublicationState,
    alteration_command,
    creation_command,
    filter_commands,
    why_unfit,
)
from cdc.bridge.source.rights import heaps
from cdc.bridge.source.table import TableInfo, quoted, why_unusable


class Capture(NamedTuple):
    """What is to be captured, and by which role.

    Attributes:
        grows: whether a pattern may reach tables that do not exist yet.
        secured: qualified names of tables with row-level security.
        state: the publication as it is now; None when there is none.
        outboxes: tables that only the publication has to carry.
        unfit: why tables cannot be filtered by their conditions; they are not among ``tables``.
        unlike: tables that the publication carries, but not with their conditions.
    """

    role: str
    database: str
    tables: Sequence[TableInfo]
    grows: bool
    secured: Sequence[str]
    publication: str
    mode: Mode
    state: PublicationState | None
    outboxes: Sequence[TableInfo] = ()
    unfit: Sequence[str] = ()
    unlike: Sequence[TableInfo] = ()


def capture_grants(capture: Capture) -> list[str]:
    """Returns lines of SQL for the tables' owner, and for a superuser where they make the role. They may run twice."""
    role = quoted(capture.role)
    usable = [each for each in capture.tables if why_unusable(each) is None]
    names = list(dict.fromkeys(heap for info in usable for heap in heaps(info)))
    schemas = [quoted(each) for each in dict.fromkeys(namespace for namespace, _ in names)]
    tables = ",\n  ".join(quoted(*name) for name in names)
    return [
        *role_lines(capture.role, "LOGIN REPLICATION"),
        *_bypass(role, capture.secured),
        f"GRANT CONNECT ON DATABASE {quoted(capture.database)} TO {role};",
        *(f"GRANT USAGE ON SCHEMA {schema} TO {role};" for schema in schemas),
        *([f"GRANT SELECT ON\n  {tables}\n  TO {role};"] if names else []),
        *(_later(schemas, role) if capture.grows and schemas else []),
        *_publish(capture, [*usable, *capture.outboxes]),
    ]


def _later(schemas: Sequence[str], role: str) -> list[str]:
    command = f"ALTER DEFAULT PRIVILEGES IN SCHEMA {', '.join(schemas)} GRANT SELECT ON TABLES TO {role};"
    return ["-- and for tables to come, as the role that will make them:", comment(f"  {command}")]


def _bypass(role: str, secured: Sequence[str]) -> list[str]:
    if not secured:
        return []
    return [comment(f"{', '.join(secured)}: row-level security would hide rows"), f"ALTER ROLE {role} BYPASSRLS;"]


def _publish(capture: Capture, tables: Sequence[TableInfo]) -> list[str]:
    name, mode = capture.publication, capture.mode
    # A table without a key must stay out: in a publication, the server would refuse its UPDATEs and DELETEs.
    unusable = [why for each in capture.tables if (why := why_unusable(each)) is not None]
    left_out = [comment(f"{why}: it is left out") for why in (*(each.reason for each in unusable), *capture.unfit)]
    if not tables:
        return [*left_out, "-- so there is nothing to read or to publish yet"]
    if capture.state is None:
        lines = [creation_command(name, mode, tables)]
    elif (refusal := why_unfit(capture.state, mode=mode, tables=tables)) is not None:
        lines = [refusal.remedy]
    elif mode == "filtered" and capture.state.tables != {each.qualified_name for each in tables}:
        lines = [alteration_command(name, tables)]
    elif capture.unlike:
        lines = [line for each in capture.unlike for line in filter_commands(capture.state, each)]
    else:
        lines = [comment(f"publication {name} is there and carries these tables")]
    if mode == "filtered":
        lines += [
            "-- With that, set source.publication_mode: disabled. With filtered, it works until source.tables changes:",
            "-- then the bridge has to alter the publication itself, which takes the rights of the tables' owner:",
            comment(f"  GRANT CREATE ON DATABASE {quoted(capture.database)} TO {quoted(capture.role)};"),
            comment(f"  ALTER PUBLICATION {quoted(name)} OWNER TO {quoted(capture.role)};"),
            comment(f"  GRANT … TO {quoted(capture.role)};  -- the role that owns the tables"),
        ]
    return [*left_out, *lines]
