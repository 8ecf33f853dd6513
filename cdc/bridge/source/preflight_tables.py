"""Finds what in the tables and their publication would keep the bridge from starting, or surprise its operator. No I/O.

It judges facts that ``catalog``, ``server`` and ``publication`` read. Each finding has its remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cdc.bridge.source.catalog import OtherRelation
from cdc.bridge.source.preflight import Finding, Level
from cdc.bridge.source.publication import (
    Mode,
    PublicationState,
    alteration_command,
    creation_command,
    has_column_list,
    why_unfit,
)
from cdc.bridge.source.rights import TableRights, why_unreadable
from cdc.bridge.source.server import ServerFacts
from cdc.bridge.source.table import TableInfo, quoted, why_unusable
from cdc.contract.change import ReplicaIdentity

_NOT_KEPT_LOGGED: Final = (
    "; FOR ALL TABLES does not keep anybody from SET UNLOGGED, and changes until SET LOGGED are not in the stream: "
    "`cdc backfill TABLE --sweep` after it, or publication_mode: filtered"
)


def check_scope(
    tables: Sequence[TableInfo], others: Sequence[OtherRelation], unmatched: Sequence[str]
) -> list[Finding]:
    """Returns findings on whether the patterns of ``source.tables`` reach what they should.

    Args:
        unmatched: patterns that reach no table at all.
    """
    findings = []
    named = {each.qualified_name for each in others}
    for pattern in unmatched:
        if pattern not in named:
            level: Level = "WARN" if "*" in pattern and tables else "FAIL"
            remedy = "correct source.tables (case matters), or create the table first"
            findings.append(Finding(level, f"source.tables {pattern}", "matches no table", remedy))
    for other in others:
        subject = f"relation {other.qualified_name}"
        if other.unreadable:
            level = "FAIL" if other.explicit else "WARN"
            text = (
                f"has a name that is not UTF-8 ({other.unreadable}), and is left out: PostgreSQL cannot send it to cdc"
            )
            remedy = (
                "rename it, in a session with client_encoding = SQL_ASCII;"
                f"  -- or add {other.qualified_name} to source.exclude"
            )
            findings.append(Finding(level, subject, text, remedy))
        elif other.what == "an unlogged table":
            level = "FAIL" if other.explicit else "WARN"
            remedy = f"ALTER TABLE {quoted(other.namespace, other.name)} SET LOGGED;  -- or add it to source.exclude"
            findings.append(Finding(level, subject, "is an unlogged table: its changes are not in the WAL", remedy))
        elif other.explicit and other.partition_root:
            remedy = f"name {other.partition_root} in source.tables instead"
            findings.append(Finding("FAIL", subject, f"is a partition of {other.partition_root}", remedy))
        elif other.explicit:
            remedy = f"take {other.qualified_name} out of source.tables"
            findings.append(
                Finding("FAIL", subject, f"is {other.what}, which logical replication does not carry", remedy)
            )
    return findings


def check_table(
    info: TableInfo,
    rights: Mapping[str, TableRights],
    role: str,
    *,
    has_out_of_line: bool | None,
    is_needed: bool = True,
) -> list[Finding]:
    """Returns findings on the key, replica identity, TOAST values and privileges of one table; one OK if all is well.

    Args:
        has_out_of_line: whether the table holds values that are stored out of line now; None when nobody can tell.
        is_needed: it is named in full, or no table is captured without it. Others without a key are left out.
    """
    subject = f"table {info.qualified_name}"
    refusal = why_unusable(info)
    if refusal is not None:
        why = refusal.reason.removeprefix(subject).strip()
        level: Level = "FAIL" if is_needed else "WARN"
        return [Finding(level, subject, why if is_needed else f"{why}: it is left out", refusal.remedy)]
    findings = [
        Finding("FAIL", subject, each.reason.removeprefix(subject).strip(), each.remedy)
        for each in why_unreadable(info, rights, role)
    ]
    findings += _cautions(info, has_out_of_line)
    if not findings:
        text = f"key ({', '.join(info.key)}), from the {info.key_source}; identity {info.replica_identity.name}"
        if _may_lack_values(info):
            text += f"; no value of {', '.join(info.toastable)} is large enough yet to be left out of the stream"
        return [Finding("OK", subject, text)]
    return findings


def _may_lack_values(info: TableInfo) -> bool:
    """Whether the stream would leave out large values that an update does not touch."""
    return bool(info.toastable) and info.replica_identity is not ReplicaIdentity.FULL


def _cautions(info: TableInfo, has_out_of_line: bool | None) -> list[Finding]:
    subject, table = f"table {info.qualified_name}", info.quoted_name
    findings = []
    if info.key and not info.key_is_enforced:
        columns = ", ".join(map(quoted, info.key))
        not_null = ", ".join(f"ALTER COLUMN {quoted(column)} SET NOT NULL" for column in info.key)
        text = f"nothing keeps its configured key ({', '.join(info.key)}) unique: rows with the same key become one"
        remedy = f"ALTER TABLE {table} {not_null}; CREATE UNIQUE INDEX ON {table} ({columns});"
        findings.append(Finding("WARN", subject, text, remedy))
    if has_out_of_line and _may_lack_values(info):
        text = (
            f"the stream leaves out large values of {', '.join(info.toastable)} that an update does not touch; "
            "the bridge re-reads them, and may then publish a newer value than the change's own"
        )
        findings.append(Finding("WARN", subject, text, f"{_full_identity(info)}  -- exact, at the price of more WAL"))
    if has_out_of_line is None and _may_lack_values(info):
        text = (
            "is locked, so nobody can tell now whether it holds values of "
            f"{', '.join(info.toastable)} that are large enough to be left out of the stream"
        )
        findings.append(Finding("WARN", subject, text, "run cdc check again when the lock is gone"))
    if info.kind == "p":
        text = "TRUNCATE, DETACH or DROP of a single partition is not in the stream: its keys stay in the topic"
        findings.append(Finding("WARN", subject, text, "DELETE FROM the partition first, or TRUNCATE the root"))
    return findings


def _full_identity(info: TableInfo) -> str:
    # ALTER TABLE on a root does not reach its partitions, which log with their own identity
    tables = (info.quoted_name, *(quoted(*leaf) for leaf in info.leaves))
    return " ".join(f"ALTER TABLE {table} REPLICA IDENTITY FULL;" for table in tables)


def check_publication(
    state: PublicationState | None,
    *,
    name: str,
    mode: Mode,
    tables: Sequence[TableInfo],
    rights: Mapping[str, TableRights],
    facts: ServerFacts,
) -> list[Finding]:
    """Returns findings on whether the publication carries what is wanted, or our role may change it so that it does."""
    subject = f"publication {name}"
    if state is None:
        create = creation_command(name, mode, tables)
        if mode == "disabled":
            text = "does not exist, and source.publication_mode is disabled"
            return [Finding("FAIL", subject, text, create)]
        if reason := _may_not_publish(mode, tables, rights, facts):
            return [Finding("FAIL", subject, f"does not exist, and {reason}", f"{create}  -- as a superuser")]
        return [Finding("OK", subject, "will be made")]
    if refusal := why_unfit(state, mode=mode, tables=tables):
        reason = refusal.message.removeprefix(subject).strip()
        return [Finding("FAIL", subject, reason, refusal.remedy)]
    if mode != "filtered" or state.tables == {each.qualified_name for each in tables}:
        note = _NOT_KEPT_LOGGED if mode == "all_tables" else ""
        return [Finding("OK", subject, f"carries {len(state.tables)} tables{note}"), *_narrowed(state, tables)]
    reason = None if state.owned else f"role {facts.role} does not own it"
    reason = reason or _not_owned(tables, rights, facts)
    if reason:
        alter = alteration_command(name, tables)
        return [Finding("FAIL", subject, f"carries other tables, and {reason}", f"{alter}  -- as a superuser")]
    return [Finding("OK", subject, "will be altered to carry the tables of source.tables")]


def _may_not_publish(
    mode: Mode, tables: Sequence[TableInfo], rights: Mapping[str, TableRights], facts: ServerFacts
) -> str | None:
    if facts.is_superuser:
        return None
    if mode == "all_tables":
        return f"role {facts.role} is not a superuser, and FOR ALL TABLES needs one"
    if not facts.can_create_in_database:
        return f"role {facts.role} may not create in database {facts.database}"
    return _not_owned(tables, rights, facts)


def _not_owned(tables: Sequence[TableInfo], rights: Mapping[str, TableRights], facts: ServerFacts) -> str | None:
    others = [each.qualified_name for each in tables if not rights[each.qualified_name].owned]
    return f"role {facts.role} does not own {', '.join(others)}" if others else None


def _narrowed(state: PublicationState, tables: Sequence[TableInfo]) -> list[Finding]:
    return [
        Finding(
            "WARN",
            f"table {info.qualified_name}",
            "is published with a column list or row filter: its topic and replica hold no more than that",
            f"ALTER PUBLICATION {quoted(state.name)} DROP TABLE ONLY {info.quoted_name}; "
            f"ALTER PUBLICATION {quoted(state.name)} ADD TABLE ONLY {info.quoted_name};",
        )
        for info in tables
        if info.qualified_name in state.narrowed and (info.condition is None or has_column_list(state, info))
    ]
