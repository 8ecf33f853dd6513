"""The checks of ``cdc check`` for the source and for Kafka. A server that is down is a finding like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg

from cdc.base.compiled import language
from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.order.succession import Successions
from cdc.bridge.scope.hidden import misfit, readable_until, rules_told, without_table
from cdc.bridge.scope.outboxes import find_outboxes
from cdc.bridge.scope.row_rules import row_misfit, wrongly_filtered
from cdc.bridge.scope.topics import history_topics, state_topic, topic_specifications
from cdc.bridge.source.catalog import find_others, find_tables, out_of_line, unmatched
from cdc.bridge.source.connect import LOOK_S, connect, describe
from cdc.bridge.source.failover import check_failover, failover_facts
from cdc.bridge.source.preflight import Finding, check_server, check_slot
from cdc.bridge.source.preflight_tables import check_publication, check_scope, check_table
from cdc.bridge.source.publication import inspect_publication
from cdc.bridge.source.rights import table_rights
from cdc.bridge.source.row_filter import is_same_condition
from cdc.bridge.source.server import server_facts
from cdc.bridge.source.slot import inspect_slot
from cdc.bridge.source.table import TableInfo, why_unusable
from cdc.contract.naming import collisions, schemas_topic
from cdc.contract.record import TableSchema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import COMPACTION_LAG, TopicAdmin, collision
from cdc.kafka.replay.definitions import read_definitions
from cdc.kafka.replay.horizon import MARGIN_S, SHORT_LAG_S

_APPLICATION: Final = "cdc check"
_DELIVERIES: Final[Mapping[str, str]] = {
    "transactional": "transactional: readers see rows of the stream together with the progress that covers them",
    "idempotent": "idempotent: rows are readable at once. Readers other than sinks and views may see part of a source "
    "transaction. For each key, they must ignore a record with a lower (lsn, seq) than the newest one they have seen",
}
_ASIDE: Final = "to readers they are deleted, until a good version of each comes"


@contextlib.contextmanager
def failing(findings: list[Finding], subject: str) -> Iterator[None]:
    """Turn an error in the block into a finding, and continue after the block."""
    try:
        yield
    except CdcError as error:
        findings.append(Finding.failure(subject, error))


def check_program() -> list[Finding]:
    """Returns findings about the program itself."""
    if language() == "C":
        return [Finding("OK", "hot path", "in C")]
    text = "in Python: the same records, at about half the speed"
    return [
        Finding(
            "OK", "hot path", text, "for the C version, install gcc or clang, reinstall cdc, and unset CDC_PURE_PYTHON"
        )
    ]


def check_source(config: Config) -> tuple[list[Finding], tuple[TableInfo, ...]]:
    """Returns findings about the source, and the tables in scope if they could be read."""
    findings: list[Finding] = []
    tables: tuple[TableInfo, ...] = ()
    source = config.source
    with (
        failing(findings, "connection"),
        connect(source.connection(), application_name=_APPLICATION, lock_timeout_s=LOOK_S) as conn,
    ):
        findings.append(Finding("OK", "connection", describe(source.connection())))
        facts = server_facts(conn)
        findings += check_server(facts, reads_tables=config.snapshot.mode != "never")
        findings += check_slot(facts, source.slot, inspect_slot(conn, source.slot))
        if not facts.in_recovery:
            findings += check_failover(failover_facts(conn, source.slot), source.slot)
        # Otherwise check_server has already reported why a replication connection would be refused.
        if facts.can_replicate and facts.senders_used < facts.senders_max:
            findings += _walsender(config)
        tables = find_tables(conn, source.tables, source.exclude, source.keys, source.rows)
        others = find_others(conn, source.tables, source.exclude)
        findings += check_scope(tables, others, unmatched(source.tables, tables))
        findings += _columns(config, tables)
        rights = table_rights(conn, tables)
        stored = out_of_line(conn, tables)
        usable = tuple(each for each in tables if why_unusable(each) is None)
        unfiltered = _rows(conn, config, usable, findings)
        usable = tuple(each for each in usable if each.qualified_name not in unfiltered)
        for info in tables:
            is_needed = not usable or info.qualified_name in source.tables
            findings += check_table(info, rights, facts.role, has_out_of_line=stored.get(info.oid), is_needed=is_needed)
        tables = usable or tables
        outboxes: tuple[TableInfo, ...] = ()
        with failing(findings, "outbox"):
            outboxes = find_outboxes(conn, config)
            findings += [
                Finding("OK", f"outbox {each.qualified_name}", "its new rows become events") for each in outboxes
            ]
        findings += [
            Finding("OK", f"messages {prefix}", f"become events of topic {each.topic}")
            for prefix, each in source.messages.items()
        ]
        if usable:  # PostgreSQL refuses updates of a published table without a replica identity, so leave those out
            findings += check_publication(
                inspect_publication(conn, source.publication),
                name=source.publication,
                mode=source.publication_mode,
                tables=(*usable, *outboxes),
                rights={**rights, **table_rights(conn, outboxes)},
                facts=facts,
            )
    return findings, tables


def _columns(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Returns which columns do not leave as they are, and a failure for each table whose rules do not fit."""
    misfits = (misfit(config, each.qualified_name, each.columns, each.key) for each in tables if each.key)
    unfit = [*without_table(config, [each.qualified_name for each in tables]), *filter(None, misfits)]
    findings = [
        Finding(
            "FAIL", f"table {each.table}", each.reason.removeprefix(f"table {each.table}").lstrip(", "), each.remedy
        )
        for each in unfit
    ]
    for table in sorted(config.source.columns.keys() - {each.table for each in unfit}):
        rules = ", ".join(f"{column} {rule}" for column, rule in rules_told(config, table))
        findings.append(Finding("OK", f"table {table}", f"has columns that do not leave as they are: {rules}"))
    return findings


def _rows(
    conn: psycopg.Connection[Any], config: Config, tables: Sequence[TableInfo], findings: list[Finding]
) -> set[str]:
    """Adds which tables leave in part, and a failure for each that cannot; returns those that must not be published."""
    unfit: set[str] = set()
    ruled = [each for each in tables if each.condition is not None]
    for info in ruled:
        subject = f"table {info.qualified_name}"
        with failing(findings, subject):
            if (left := row_misfit(conn, config, info)) is not None:
                unfit.add(info.qualified_name)
            wrong = wrongly_filtered(conn, config, [info]) if left is None else [left]
            findings += [
                Finding("FAIL", subject, each.reason.removeprefix(f"{subject} "), each.remedy) for each in wrong
            ]
            if not wrong:
                findings.append(Finding("OK", subject, f"only rows that satisfy {info.condition} leave"))
    return unfit


def _walsender(config: Config) -> list[Finding]:
    """Open a replication connection, because pg_hba.conf and connection limits may still refuse one."""
    findings: list[Finding] = []
    with failing(findings, "walsender connection"):
        session = CopyBoth(config.source.connection(), application_name=_APPLICATION)
        try:
            system = session.identify()
        finally:
            session.close()
        findings.append(
            Finding("OK", "walsender connection", f"timeline {system.timeline}, WAL up to {system.flush_lsn}")
        )
    return findings


def check_kafka(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Returns findings about the brokers and the topics of these tables."""
    findings = [Finding("OK", "delivery", _DELIVERIES[config.delivery])]
    findings += [
        Finding(
            "OK", f"quarantine of {table}", f"up to {each.budget:,} rows that cannot be carried stand aside: {_ASIDE}"
        )
        for table, each in sorted(config.source.quarantine.items())
    ]
    nameable: list[TableInfo] = []
    for info in tables:
        with failing(findings, f"table {info.qualified_name}"):
            state_topic(config, info.namespace, info.name)
            history_topics(config, [info])
            nameable.append(info)
    findings += [
        Finding("WARN", "topics.history", f"{pattern} matches no captured table", "correct topics.history")
        for pattern in unmatched(config.topics.history, tables)
    ]
    if caution := _short_lag(config.topics.min_compaction_lag_ms):
        text = f"is {config.topics.min_compaction_lag_ms}{caution}"
        findings.append(Finding("WARN", "topics.min_compaction_lag_ms", text, "set it to 60000, the default, or more"))
    with failing(findings, "brokers"):
        admin = TopicAdmin(BrokerAdmin(config.kafka.client_options()))
        existing = admin.partitions()
        findings.append(Finding("OK", "brokers", f"{config.kafka.bootstrap} answers"))
        if schemas_topic(config.name) in existing:  # made by the bridge at its first start
            findings += _other_rules(config, nameable)
        specifications = topic_specifications(config, nameable)
        drifts = admin.drift(specifications)
        for drift in drifts:
            text = f"has {drift.setting}={drift.found}, the configuration says {drift.wanted}"
            if drift.setting == COMPACTION_LAG and drift.found.isdigit():
                text += _short_lag(int(drift.found))
            findings.append(Finding("FAIL" if drift.is_fatal else "WARN", f"topic {drift.topic}", text, drift.remedy))
        drifted = {drift.topic for drift in drifts}
        names = [each.name for each in specifications]
        colliding = dict(collisions([name for name in names if name not in existing], [*existing, *names]))
        for each in specifications:
            if each.name in colliding:
                findings.append(Finding.failure(f"topic {each.name}", collision(each.name, colliding[each.name])))
            elif each.name not in existing:
                text = f"will be created with {each.partitions} partitions"
                findings.append(Finding("OK", f"topic {each.name}", text))
            elif each.name not in drifted:
                findings.append(Finding("OK", f"topic {each.name}", "as the configuration says"))
    return findings


def _other_rules(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Returns a warning for each topic that was written by other rules: it may hold what is hidden now."""
    written = Successions(read_definitions(BrokerAdmin(config.kafka.client_options()), schemas_topic(config.name)))
    findings = []
    for info in tables:
        last = written.last(topic := state_topic(config, info.namespace, info.name))
        if last is None:
            continue
        options = ["source.columns"] if last.rules != rules_told(config, info.qualified_name) else []
        options += ["source.rows"] if _has_other_condition(config, info, last) else []
        if options:
            text = (
                f"was written by other rules than {' and '.join(options)} has now, and begins anew; if the bridge "
                f"starts now, Kafka's files hold the former values until about {readable_until(config)}"
            )
            remedy = "start the bridge; or give the table another topic under topics.names, and delete this one"
            findings.append(Finding("WARN", f"topic {topic}", text, remedy))
    return findings


def _has_other_condition(config: Config, info: TableInfo, last: TableSchema) -> bool:
    if last.rows is None or info.condition is None:
        return last.rows is not None or info.condition is not None
    with (
        contextlib.suppress(CdcError),  # check_source has reported it
        connect(config.source.connection(), application_name=_APPLICATION, lock_timeout_s=LOOK_S) as conn,
    ):
        return not is_same_condition(conn, info, last.rows.condition, info.condition)
    return False


def _short_lag(lag_ms: int) -> str:
    """Returns what a short min.compaction.lag.ms means for readers, as the end of a sentence; empty if it is fine."""
    if lag_ms >= SHORT_LAG_S * 1_000:
        return ""
    slack_s = max(lag_ms / 1_000 - MARGIN_S, 0)
    return (
        f": a sink that is more than {slack_s:g} s behind cannot tell which moment of the source it shows, and says "
        "catching_up until it has caught up; cdc snapshot then keeps reading, and may never end"
    )
