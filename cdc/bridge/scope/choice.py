"""Chooses the tables to capture, and says why other tables that ``source.tables`` matches are left out.

Theory of operation. A table that cannot be captured must not stop the others: while the bridge stands still, its slot
keeps WAL for all of them. So such a table is left out and reported with its remedy, and joins once that is done.

Two cases are refused instead. If nothing was ever published, the operator is watching, and no WAL is kept for anybody.
Then a start stops on tables that are spelled out, and on tables that the role may not read. The other case is a table
that was captured, and that the role may not read any more. It has to be granted again: until then its changes stay in
the WAL, and none is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import psycopg
import structlog

from cdc.base.config import Config
from cdc.base.errors import SourceRefused
from cdc.base.table_names import in_yaml, parts, qualified
from cdc.bridge.scope.hidden import misfit, without_table
from cdc.bridge.scope.left_out import LeftOut
from cdc.bridge.scope.row_rules import row_misfit, wrongly_filtered
from cdc.bridge.source.catalog import find_others, find_tables, names_of
from cdc.bridge.source.preflight_tables import check_scope
from cdc.bridge.source.publication import filter_commands, inspect_publication
from cdc.bridge.source.rights import table_rights, why_unreadable
from cdc.bridge.source.table import TableInfo, quoted, why_unusable

log = structlog.get_logger("cdc.bridge")


class Scope(NamedTuple):
    """The tables to capture, and those that are left out."""

    tables: tuple[TableInfo, ...]
    left_out: tuple[LeftOut, ...]


def choose(
    connection: psycopg.Connection[Any],
    config: Config,
    before: Mapping[str, int] | None = MappingProxyType({}),
    *,
    may_be_empty: bool = False,
) -> Scope:
    """Choose the tables that ``source.tables`` names.

    Args:
        before: tables that were captured before, with the oid of each. If the role lost its rights on such a table, its
            changes must not be skipped. None when nothing was ever published.
        may_be_empty: do not refuse an empty scope; for callers that only want to look.

    Raises:
        SourceRefused: there are none, or some must not be left out. Names them, with the command for each.
    """
    source, is_first = config.source, before is None
    found = find_tables(connection, source.tables, source.exclude, source.keys, source.rows)
    left = [*_others(connection, config), *left_out(connection, config, found)]
    left += without_table(config, {each.qualified_name for each in found} | {each.table for each in left})
    needed = {each.qualified_name for each in found} if before is None else set(before)
    refuse([each for each in left if each.cause == "rights" and each.table in needed])
    refuse([each for each in left if each.cause == "table" and each.is_named and is_first])
    left = [
        each for each in left if each.cause != "publication" or each.table not in needed
    ]  # a publication that lacks a needed table is refused as a whole, later
    names = {each.table for each in left}
    tables = tuple(each for each in found if each.qualified_name not in names)
    if not tables and not may_be_empty:
        refuse(left)
        raise _nothing_matches(source.tables, renamed(connection, before or {}, ()))
    return Scope(tables, tuple(left))


class Renamed(NamedTuple):
    """A captured table that has another name now. ``back`` is the command that gives it its old name again."""

    old: str
    new: str
    back: str


def renamed(
    connection: psycopg.Connection[Any], before: Mapping[str, int], tables: Sequence[TableInfo]
) -> list[Renamed]:
    """Finds tables that were captured before and were renamed.

    Args:
        before: the tables that were captured before, with the oid of each.
        tables: the tables that are captured now; neither they nor their names are looked for.
    """
    names, oids = {each.qualified_name for each in tables}, {each.oid for each in tables}
    away = {old: oid for old, oid in before.items() if old not in names and oid not in oids}
    now = names_of(connection, away.values()) if away else {}
    found = []
    for old, oid in away.items():
        if oid in now and qualified(*now[oid]) != old:
            (namespace, name), (own, own_name) = now[oid], parts(old)
            back = [f"ALTER TABLE {quoted(namespace, name)} SET SCHEMA {quoted(own)};"] if namespace != own else []
            back += [f"ALTER TABLE {quoted(own, name)} RENAME TO {quoted(own_name)};"] if name != own_name else []
            found.append(Renamed(old, qualified(namespace, name), " ".join(back)))
    return found


def tell_of_renamed(tables: Iterable[Renamed]) -> None:
    """Warn of tables that were captured before and have a name now that ``source.tables`` does not match."""
    for each in tables:
        log.warning(
            "a captured table was renamed out of source.tables: its changes are not published any more, "
            "its topic keeps the last rows",
            table=each.old,
            name=each.new,
            remedy=f"add {each.new} to source.tables, where it gets a topic of its own; "
            f"or give it its old name again: {each.back}",
        )


def _nothing_matches(patterns: Sequence[str], away: Sequence[Renamed]) -> SourceRefused:
    text, remedy = (
        f"no table matches source.tables ({', '.join(patterns)})",
        "correct source.tables, or create the tables first",
    )
    if away:
        text += "".join(f"; {each.old} is called {each.new} now" for each in away)
        names = ", ".join(in_yaml(each.new) for each in away)
        remedy = "\n".join(
            [
                f"source.tables: [{names}]  # each gets a topic of its own under the new name, and is published again",
                *(f"{each.back}  -- or give it its old name and topic again" for each in away),
            ]
        )
    return SourceRefused(text, remedy=remedy)


def left_out(connection: psycopg.Connection[Any], config: Config, tables: Sequence[TableInfo]) -> list[LeftOut]:
    """Returns which of these tables cannot be captured; a table appears once for each reason."""
    found = unusable(connection, config, tables)
    # A table without a key must stay out of the publication, where the server would refuse its UPDATEs and DELETEs. So
    # nobody is told to put it there before it has a key.
    keyless = {each.table for each in found if each.cause == "table"}
    fit = [each for each in tables if each.qualified_name not in keyless]
    return [*found, *_unpublished(connection, config, fit), *wrongly_filtered(connection, config, fit)]


def unusable(connection: psycopg.Connection[Any], config: Config, tables: Sequence[TableInfo]) -> list[LeftOut]:
    """Returns the tables without a key that we can use, and among the others those that we may not read.

    A table that is left out because it has no key needs no rights: ``cdc grants source`` gives none for it.
    """
    if not tables:
        return []
    rights, role = table_rights(connection, tables), connection.info.user
    found = []
    for info in tables:
        name = info.qualified_name
        is_named = name in config.source.tables
        if (why := why_unusable(info)) is not None:
            found.append(LeftOut(name, why.reason, why.remedy, is_named, "table"))
            continue
        if (left := misfit(config, name, info.columns, info.key)) is not None:
            found.append(left)
            continue
        unread = [LeftOut(name, *each, is_named, "rights") for each in why_unreadable(info, rights, role)]
        unfit = None if unread else row_misfit(connection, config, info)
        found += unread if unfit is None else [unfit]
    return found


def _unpublished(connection: psycopg.Connection[Any], config: Config, tables: Sequence[TableInfo]) -> list[LeftOut]:
    """Returns the tables that the publication does not carry, and that we cannot add to it."""
    source, role = config.source, connection.info.user
    state = inspect_publication(connection, source.publication)
    if state is None or source.publication_mode == "all_tables":
        return []
    missing = [each for each in tables if each.qualified_name not in state.tables]
    if not missing:
        return []
    rights = table_rights(connection, missing)
    found = []
    for info in missing:
        name = info.qualified_name
        may_add = state.owned and name in rights and rights[name].owned
        if source.publication_mode == "filtered" and may_add:
            continue
        why_not = f"role {role} may not add it"
        if source.publication_mode == "disabled":
            why_not = "source.publication_mode is disabled"
        reason = f"table {name} is not in publication {source.publication}, and {why_not}"
        remedy = " ".join(filter_commands(state, info))
        found.append(LeftOut(name, reason, remedy, name in source.tables, "publication"))
    return found


def tell(left: Iterable[LeftOut], told: MutableMapping[str, str]) -> None:
    """Report each table once; as an error if ``source.tables`` spells it out.

    Args:
        left: the tables to report.
        told: the reasons that were reported in this process, all of a table in one text; kept up to date.
    """
    by_table: dict[str, list[LeftOut]] = {}
    for each in left:
        by_table.setdefault(each.table, []).append(each)
    for table, reasons in by_table.items():
        if told.get(table) != (together := "; ".join(each.reason for each in reasons)):
            for each in reasons:
                say = log.error if each.is_named else log.warning
                say("a table is not captured", table=table, reason=each.reason, remedy=each.remedy)
            told[table] = together


def _others(connection: psycopg.Connection[Any], config: Config) -> list[LeftOut]:
    """Returns relations that are spelled out but cannot be captured: views, unlogged tables, names not in UTF-8 …"""
    source = config.source
    others = [
        each for each in find_others(connection, source.tables, source.exclude) if each.explicit or each.unreadable
    ]
    return [
        LeftOut(each.qualified_name, f"{finding.subject} {finding.text}", finding.remedy, each.explicit, "table")
        for each in others
        for finding in check_scope((), [each], ())
    ]


def refuse(left: Sequence[LeftOut]) -> None:
    """Stop on these tables, if there are any.

    Raises:
        SourceRefused: names all of them, with the command for each.
    """
    if left:
        names = ", ".join(dict.fromkeys(in_yaml(each.table) for each in left))
        raise SourceRefused(
            "; ".join(each.reason for each in left),
            remedy="\n".join([*(each.remedy for each in left), f"or source.exclude: [{names}]"]),
        )
