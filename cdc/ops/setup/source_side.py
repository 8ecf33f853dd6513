"""Looks at the source: which tables can be captured, which cannot and why, and which rights the role lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import psycopg

from cdc.base.config import Config
from cdc.base.errors import SourceRefused
from cdc.base.table_names import qualified
from cdc.bridge.source.catalog import OtherRelation, find_others, find_tables, out_of_line
from cdc.bridge.source.connect import LOOK_S, connect, describe
from cdc.bridge.source.preflight import Finding, check_server, check_slot
from cdc.bridge.source.preflight_tables import check_publication, check_scope, check_table
from cdc.bridge.source.publication import inspect_publication
from cdc.bridge.source.rights import table_rights, why_unreadable
from cdc.bridge.source.server import ServerFacts, server_facts
from cdc.bridge.source.slot import identify, inspect_slot
from cdc.bridge.source.table import TableInfo, why_unusable
from cdc.contract.patterns import in_scope
from cdc.contract.record import SourceIdentity
from cdc.ops.setup.conninfo import over, role_of

APPLICATION: Final = "cdc init"
_EVERYTHING: Final = ("*.*",)


@dataclass(frozen=True, slots=True)
class SeenSource:
    """The state of the source database.

    Attributes:
        address: ``user@host:port/database``, for people.
        role: the role that bridge and commands will connect as.
        facts: what the server says about itself.
        identity: which server and database this is.
        patterns: patterns of the tables to capture, for ``source.tables``.
        tables: the tables that can be captured.
        troubles: what must be fixed or is worth knowing, about the server and tables; rights are not among it.
        mode: the publication mode: ``filtered`` if the role may maintain the publication, else ``disabled``.
        lacks_rights: whether the commands of ``cdc grants source`` are needed.
        is_new: whether the role could not connect.
    """

    address: str
    role: str
    facts: ServerFacts
    identity: SourceIdentity
    patterns: tuple[str, ...]
    tables: tuple[TableInfo, ...]
    troubles: tuple[Finding, ...]
    mode: Literal["filtered", "disabled"]
    lacks_rights: bool
    is_new: bool


def look_at_source(config: Config, admin: str, *, everything: bool) -> SeenSource:
    """Look at the source as the configured role or, if that cannot connect yet, as another user.

    Args:
        config: the configuration that names the source.
        admin: libpq keywords of another user; empty for none.
        everything: whether to take every schema that has a table, because no tables were chosen.

    Raises:
        SourceUnavailable: the server does not answer.
        SourceRefused: the server refuses both users, or no table can be captured.
        ConfigError: the connection string is invalid.
    """
    own = config.source.connection()
    try:
        connection, is_new = connect(own, application_name=APPLICATION, lock_timeout_s=LOOK_S), False
    except SourceRefused as error:
        if not admin:
            raise SourceRefused(
                f"{error.message}", remedy=f"{error.remedy}; or, to look as another user, add: --admin user=postgres"
            ) from None
        somebody = {"conninfo": over(own, admin)}
        connection, is_new = connect(somebody, application_name=APPLICATION, lock_timeout_s=LOOK_S), True
    with connection:
        return _look(connection, config, everything=everything, is_new=is_new)


def _look(connection: psycopg.Connection[Any], config: Config, *, everything: bool, is_new: bool) -> SeenSource:
    source, facts = config.source, server_facts(connection)
    wanted = _EVERYTHING if everything else source.tables
    found = find_tables(connection, wanted, source.exclude, source.keys, source.rows)
    others = find_others(connection, wanted, source.exclude)
    usable = tuple(each for each in found if why_unusable(each) is None)
    if not usable:
        raise _nothing(facts, wanted, found, others)
    patterns = patterns_for(sorted({each.namespace for each in usable})) if everything else source.tables
    stored = out_of_line(connection, usable)
    rights = table_rights(connection, found)
    tables = [each for each in found if in_scope(each.namespace, each.name, patterns, ())]
    troubles = [each for each in check_server(facts) if not each.subject.startswith("role ")]
    troubles += check_slot(facts, source.slot, inspect_slot(connection, source.slot))
    troubles += check_scope(usable, [each for each in others if in_scope(each.namespace, each.name, patterns, ())], ())
    for info in tables:
        troubles += check_table(info, {}, facts.role, has_out_of_line=stored.get(info.oid), is_needed=False)
    publication = check_publication(
        inspect_publication(connection, source.publication),
        name=source.publication,
        mode="filtered",
        tables=usable,
        rights=rights,
        facts=facts,
    )
    troubles += [each for each in publication if each.level == "WARN" and not is_new]
    lacks_publication = is_new or any(each.level == "FAIL" for each in publication)
    unread = any(why_unreadable(each, rights, facts.role) for each in usable)
    return SeenSource(
        address=describe(source.connection()),
        role=role_of(source.connection()),
        facts=facts,
        identity=identify(connection),
        patterns=patterns,
        tables=usable,
        troubles=tuple(each for each in troubles if each.level != "OK"),
        mode="disabled" if lacks_publication else "filtered",
        lacks_rights=lacks_publication or unread or not facts.can_replicate,
        is_new=is_new,
    )


def patterns_for(namespaces: Sequence[str]) -> tuple[str, ...]:
    """Returns a pattern for each schema."""
    return tuple(qualified(namespace, "*") for namespace in namespaces)


def _nothing(
    facts: ServerFacts, wanted: Sequence[str], found: Sequence[TableInfo], others: Sequence[OtherRelation]
) -> SourceRefused:
    """Returns the error that says, table by table, why none can be captured."""
    why = [(each.reason, each.remedy) for info in found if (each := why_unusable(info)) is not None]
    why += [(f"{each.subject} {each.text}", each.remedy) for each in check_scope((), others, ())]
    where = f"database {facts.database}" if tuple(wanted) == _EVERYTHING else ", ".join(wanted)
    return SourceRefused(
        "\n  ".join(
            [f"nothing can be captured in {where}" + ("" if why else ": there is no table")]
            + [reason for reason, _ in why]
        ),
        remedy="\n          ".join(remedy for _, remedy in why)
        or "create the tables first, or name another database or other --tables",
    )
