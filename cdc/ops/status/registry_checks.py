"""The checks of ``cdc check`` for the schema registry: whether it takes each table's schema, and still has its ids."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import psycopg

from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.bridge.capture.reading import shape_of
from cdc.bridge.scope.formats import TableFormats, former_schema
from cdc.bridge.scope.topics import state_topic
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.preflight import Finding
from cdc.bridge.source.table import TableInfo
from cdc.contract.formats.avro.keys import key_record, key_schema
from cdc.contract.formats.registered import registered
from cdc.contract.naming import schemas_topic, subject
from cdc.contract.record import TableSchema
from cdc.contract.schema import table_schema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.registry import SchemaRegistry, require_client
from cdc.kafka.replay.definitions import read_definitions
from cdc.ops.status.checks import failing

_APPLICATION = "cdc check"


def check_registry(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Returns findings about the registry; if no table is known that needs it, only what is missing."""
    findings: list[Finding] = []
    has_keys = config.topics.key_format != "json"
    others = [each for each in tables if has_keys or config.topics.format_of(each.qualified_name) != "json"]
    if config.registry is None:
        return findings
    if not others:  # the source may not have told which tables there are
        with failing(findings, "connection"):
            require_client()
        return findings
    with failing(findings, "connection"), SchemaRegistry(config.registry) as registry:
        topic = state_topic(config, others[0].namespace, others[0].name)
        mode = registry.compatibility(subject(topic, context=config.registry.context))
        findings.append(Finding("OK", "connection", f"{config.registry.url} answers, compatibility {mode}"))
        written = _written(config)
        last = {each.topic: each for each in written}
        for definition in written:
            findings += _moved(registry, definition)
        for definition in last.values():
            findings += _moved_keys(registry, definition)
        with connect(config.source.connection(), application_name=_APPLICATION, lock_timeout_s=LOOK_S) as conn:
            for info in others:
                with failing(findings, f"table {info.qualified_name}"):
                    findings.append(_schema(config, registry, conn, info, last))
    return findings


def _schema(
    config: Config,
    registry: SchemaRegistry,
    conn: psycopg.Connection,
    info: TableInfo,
    last: Mapping[str, TableSchema],
) -> Finding:
    """Returns whether the registry takes the schema that the table has now; ``last`` has the definitions by topic."""
    topic = state_topic(config, info.namespace, info.name)
    schema = table_schema(shape_of(conn, info, config.source.publication), info.key, topic)
    name = config.topics.format_of(info.qualified_name)
    if config.topics.key_format != "json" and (finding := _key_schema(config, registry, schema)) is not None:
        return finding
    if name == "json":
        return Finding("OK", f"table {info.qualified_name}", "the schema of its keys fits")
    envelope = TableFormats(config, None).envelope
    form = registered(name, envelope)
    text = form.schema(schema, config.name, config.topics.beyond)
    former = former_schema(last.get(topic), name, envelope)
    if former is not None:
        text = form.succeeding(former, text)
    assert config.registry is not None
    where = subject(topic, form.record(schema, config.name), config.registry.subjects, config.registry.context)
    kind = registry.kind(where)
    if kind is not None and kind != form.kind:
        return Finding(
            "FAIL",
            f"table {info.qualified_name}",
            f"its schema is in {form.kind} now, but subject {where} has schemas in {kind}",
            f"delete subject {where} in the registry, once nobody reads the former values; or give the table "
            "another topic under topics.names",
        )
    problems: Sequence[str] = registry.problems(where, form.kind, text)
    if former is not None and not problems and registry.compatibility(where) != "NONE":
        problems = form.misread(former, text)
    if problems:
        return Finding(
            "FAIL",
            f"table {info.qualified_name}",
            f"its schema does not fit subject {where}: {'; '.join(problems)}",
            "undo the change of the table; or give the table another topic under topics.names; or, once every reader "
            f"can take the new schema, set the compatibility of subject {where} to NONE",
        )
    return Finding("OK", f"table {info.qualified_name}", f"its schema fits subject {where}")


def _written(config: Config) -> list[TableSchema]:
    """Returns the definitions with schemas on record; none before the bridge first ran, or while Kafka is away."""
    try:
        known = read_definitions(BrokerAdmin(config.kafka.client_options()), schemas_topic(config.name))
    except CdcError:
        return []  # which the checks of Kafka tell
    return [each for each in known if each.format != "json" or each.key_schema is not None]


def _key_schema(config: Config, registry: SchemaRegistry, schema: TableSchema) -> Finding | None:
    """Returns why the registry does not take the schema of a table's keys; None if it does."""
    assert config.registry is not None
    record = key_record(schema, config.name)
    where = subject(schema.topic, record, config.registry.subjects, config.registry.context, "key")
    problems = registry.problems(where, "AVRO", key_schema(schema, config.name))
    if not problems:
        return None
    return Finding(
        "FAIL",
        f"table {schema.qualified_name}",
        f"the schema of its keys does not fit subject {where}: {'; '.join(problems)}",
        "undo the change of its key; or give the table another topic under topics.names; or set the compatibility of "
        f"subject {where} to NONE",
    )


def _moved_keys(registry: SchemaRegistry, definition: TableSchema) -> list[Finding]:
    """Returns a failure if the registry gives another answer, or none, for the id that a topic's keys begin with."""
    pinned = definition.key_schema
    if pinned is None:
        return []
    found = registry.text_of(pinned.schema_id)
    if found is not None and registered(pinned.format).is_same(found, pinned.text):
        return []
    what = "the registry does not know it" if found is None else "the registry has another schema under it"
    return [
        Finding(
            "FAIL",
            f"schema {pinned.schema_id}",
            f"keys in topic {definition.topic} begin with this id, but {what}: it was restored, or is another one",
            "restore the registry with its ids; or, if they are lost, set source.on_gap: rebackfill and restart the "
            "bridge, which deletes every key and publishes the table again",
        )
    ]


def _moved(registry: SchemaRegistry, definition: TableSchema) -> list[Finding]:
    """Returns a failure if the registry gives another answer, or none, for the id that the newest values begin with."""
    if definition.format == "json":
        return []
    schema_id, text, name = definition.written[-1]
    found = registry.text_of(schema_id)
    if found is not None and registered(name).is_same(found, text):
        return []
    what = "the registry does not know it" if found is None else "the registry has another schema under it"
    return [
        Finding(
            "FAIL",
            f"schema {schema_id}",
            f"values in topic {definition.topic} begin with this id, but {what}: it was restored, or is another one",
            "restore the registry with its ids; or, if they are lost, restart the bridge, which registers the schema "
            f"anew, and then publish the rows again: cdc backfill {shlex.quote(definition.qualified_name)}",
        )
    ]
