"""The rules of ``source.columns`` for one table, and whether they can be applied to it.

A rule that names no column may be misspelled, or its column renamed, and what it is to hide would leave. So a table
whose rules do not fit is left out, at a start and in the stream, until they do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from cdc.base.config import Config
from cdc.base.table_names import in_yaml
from cdc.bridge.scope.left_out import LeftOut
from cdc.contract.change import Column, Relation
from cdc.contract.hiding import ColumnRules, Hiding


def column_rules(config: Config, table: str) -> ColumnRules | None:
    """Returns what may not leave of a table; None if all of it may.

    Args:
        table: its qualified name.
    """
    chosen = config.source.columns.get(table)
    if chosen is None:
        return None
    keep = frozenset(chosen.keep) if chosen.policy == "strict" else None
    salt = b"" if config.source.salt is None else config.source.salt.get_secret_value().encode()
    return ColumnRules(frozenset(chosen.exclude), chosen.mask, keep, salt)


def hiding_of(config: Config, relation: Relation) -> Hiding | None:
    """Returns what hides columns of a relation; None if all of it leaves. The rules must fit it."""
    rules = column_rules(config, relation.qualified_name)
    return None if rules is None else Hiding(relation, rules)


def published(config: Config, relation: Relation) -> Relation:
    """Returns a relation without what is hidden of it."""
    hiding = hiding_of(config, relation)
    return relation if hiding is None else hiding.relation


def published_columns(config: Config, table: str, columns: Sequence[Column]) -> Sequence[Column]:
    """Returns columns that were read from the catalog, without what is hidden of them; ``table`` as for the rules."""
    rules = column_rules(config, table)
    return columns if rules is None else rules.published(columns)


def rules_told(config: Config, table: str) -> tuple[tuple[str, str], ...]:
    """Returns a table's rules as its definition tells them; ``table`` as for the rules."""
    rules = column_rules(config, table)
    return () if rules is None else rules.told


def misfit(config: Config, table: str, columns: Collection[str], key: Collection[str]) -> LeftOut | None:
    """Returns why a table's rules cannot be applied; None if they can, or there are none.

    Args:
        table: its qualified name.
        columns: its published columns.
        key: the columns of its record key.
    """
    rules = column_rules(config, table)
    if rules is None or not (why := rules.misfit(columns, key)):
        return None
    remedy = (
        f"correct source.columns for {in_yaml(table)}: its key is {', '.join(key)}, its columns are "
        f"{', '.join(columns)}"
    )
    return LeftOut(table, f"table {table} {why}", remedy, table in config.source.tables, "table")


def without_table(config: Config, tables: Iterable[str]) -> list[LeftOut]:
    """Returns the tables that rules of ``source`` name and that are not there, maybe misspelled.

    Args:
        tables: the qualified names of the tables that ``source.tables`` matches.
    """
    present = set(tables)
    absent = {
        "source.columns": config.source.columns.keys() - present,
        "source.rows": config.source.rows.keys() - present,
        "source.quarantine": config.source.quarantine.keys() - present,
    }
    return [
        LeftOut(
            name,
            f"table {name}, which {option} names, is not among source.tables",
            f"correct {option} (case matters); a rule for a misspelled name does nothing",
            True,
            "table",
        )
        for option, names in absent.items()
        for name in sorted(names)
    ]


def readable_until(config: Config) -> str:
    """Returns, for people, when values that the topics held until now are gone at the latest, if compaction keeps up.

    A record can be compacted once its segment is closed. What a history holds stays longer.
    """
    topics = config.topics
    kept = timedelta(milliseconds=topics.max_compaction_lag_ms + topics.segment_ms)
    if topics.history and topics.history_retention_ms < 0:
        return "for ever, because topics.history_retention_ms is -1"
    if topics.history:
        kept = max(kept, timedelta(milliseconds=topics.history_retention_ms + topics.segment_ms))
    return f"{datetime.now(UTC) + kept:%Y-%m-%d %H:%M} UTC"
