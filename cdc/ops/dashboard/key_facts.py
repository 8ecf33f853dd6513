"""Everything that is known about one key: its record in the topic, its row in the source, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from cdc.base.config import Config
from cdc.base.errors import CdcError, SourceRefused
from cdc.bridge.capture.chunk import open_chunk_reader
from cdc.bridge.capture.key_rows import read_keys
from cdc.bridge.encode import TableEncoder
from cdc.bridge.scope.definitions import definitions_of
from cdc.bridge.scope.hidden import column_rules, hiding_of, misfit
from cdc.bridge.source.catalog import find_tables
from cdc.bridge.source.connect import LOOK_S
from cdc.bridge.source.locks import naming_locks
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.topic_keys import TopicKeys, key_texts
from cdc.contract.header import parse_header
from cdc.contract.json_members import member_texts
from cdc.contract.naming import history_topic
from cdc.contract.patterns import in_scope
from cdc.contract.record import TableSchema
from cdc.kafka.brokers import BrokerAdmin
from cdc.topics.history.display import as_changes
from cdc.topics.history.key import key_columns, record_key
from cdc.topics.history.scan import KeyScan
from cdc.topics.history.trail import with_changes
from cdc.topics.lookup.display import operation
from cdc.topics.lookup.record import of_table
from cdc.topics.lookup.scan import key_in_topic, newest_of_key

_LONGEST_HISTORY: Final = 50
"""How many changes are shown, the newest first; ``cdc history`` shows all."""


def key_facts(config: Config, table: str, text: str) -> dict[str, Any]:
    """Returns what ``cdc get``, the source and ``cdc history`` say about a key, as plain values.

    Args:
        config: the deployment's configuration.
        table: ``namespace.table``.
        text: the key as people write it.

    Raises:
        ConfigError: the table was never published, or the text is not a key of it.
        CdcError: Kafka does not answer.
    """
    schemas = definitions_of(config, table)
    options, topic = config.kafka.client_options(), schemas[-1].topic
    keys, key = TopicKeys(schemas), record_key(text, schemas, "the key")
    key = key_in_topic(options, topic, key, key_columns(schemas, key), keys)
    return {
        "key": keys.json(key).decode(),
        "topic": _record(options, topic, key, ValueOpener(schemas), keys),
        "source": _row(config, table, key),
        "history": _history(config, topic, key, schemas),
    }


def _record(options: Mapping[str, Any], topic: str, key: bytes, opener: ValueOpener, keys: TopicKeys) -> dict[str, Any]:
    found = newest_of_key(options, topic, key, is_ours=True)
    if not found:
        return {"topic": topic, "row": None, "why": "no record of this key"}
    stored = found[-1]
    shown, header = of_table(stored, opener, keys), parse_header(stored.header)
    return {
        "topic": topic,
        "partition": shown.partition,
        "offset": shown.offset,
        "op": operation(shown),
        "lsn": str(header.lsn),
        "xid": header.xid,
        "committed": datetime.fromtimestamp(header.ts / 1e6, UTC).isoformat(),
        "row": None if shown.row is None else member_texts(shown.row.decode()),
        "why": "deleted" if shown.row is None else None,
    }


def _row(config: Config, table: str, key: bytes) -> dict[str, Any]:
    """Returns the row as the bridge would write it now, or ``why`` there is none: an error must not hide the topic.

    What source.columns hides is hidden here, too, and rules that do not fit the table hide the row.
    """
    source, application = config.source, f"cdc {config.name} dashboard"
    try:
        with closing(
            open_chunk_reader(source.connection(), application_name=application, lock_timeout_s=LOOK_S)
        ) as conn:
            infos = find_tables(conn, [table], (), source.keys)
            if not infos:
                raise SourceRefused(
                    f"the source has no table {table}",
                    remedy="look at another table, or run `cdc tables list` for what is captured",
                )
            rules = column_rules(config, infos[0].qualified_name)
            if rules is not None and rules.hashed() & set(infos[0].key):
                return {"row": None, "why": "the key leaves as a hash, which does not tell which row it is of"}
            with naming_locks(conn, [infos[0].oid], "AccessShareLock"):
                found = read_keys(
                    conn,
                    infos[0],
                    source.publication,
                    lambda columns: [key_texts(columns, key)],
                    lambda _: True,
                    None,
                )
            row = None if found is None else found.answers[0].row
            if found is None or row is None:
                return {"row": None, "why": "no such row"}
            relation = found.relation
            refused = misfit(config, relation.qualified_name, [each.name for each in relation.columns], found.key)
            if refused is not None:
                return {"row": None, "why": refused.reason}
            encoder = TableEncoder(relation, found.key, "", hiding=hiding_of(config, relation))
            return {"row": member_texts(encoder.value(row).decode())}
    except CdcError as error:
        return {"row": None, "why": error.message}


def _history(config: Config, topic: str, key: bytes, schemas: Sequence[TableSchema]) -> dict[str, Any]:
    newest = schemas[-1]
    if not in_scope(newest.namespace, newest.name, config.topics.history, ()):
        return {"why": f"No history is kept for {newest.qualified_name}: topics.history does not name the table."}
    try:
        admin = BrokerAdmin(config.kafka.client_options())
        trail = KeyScan(admin, topic, history_topic(topic), key).trail(schemas)
    except CdcError as error:
        return {"why": f"The history cannot be read: {error.message}."}
    if not trail.entries:
        return {"why": "The history has no change of this key."}
    entries = reversed(list(with_changes(trail.entries)))
    return {
        "count": len(trail.entries),
        "entries": [as_changes(entry, changes) for entry, changes in islice(entries, _LONGEST_HISTORY)],
    }
