"""What a foreign reader is given: a topic of a bridge, with everything in it that a reader may trip over."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from confluent_kafka import Producer

from cdc.contract.ports import StoredRecord
from cdc.lab.proof.comparison import pinned
from tests.readers import table
from tests.readers.canonical import Rows, table_rows
from tests.support.deployment import Deployment

ValueFormat: TypeAlias = Literal["json", "avro", "json-schema", "protobuf", "debezium", "debezium-schemas", "connect"]
FORMATS: tuple[ValueFormat, ...] = get_args(ValueFormat)
"""What every reader is tried with: the formats, Debezium's envelope without and with schemas, and Connect's schemas."""

_ENVELOPE: Final = {"envelope": "debezium"}
_STRINGS: Final = {"decimal_handling_mode": "string"}  # NaN in a numeric has no other form there
SECTIONS: Final[Mapping[ValueFormat, Mapping[str, Mapping[str, Any]]]] = {
    "json": {},
    "avro": {"topics": {"format": "avro"}},
    "json-schema": {"topics": {"format": "json-schema"}},
    "protobuf": {"topics": {"format": "protobuf"}},
    "debezium": {"topics": _ENVELOPE, "debezium": _STRINGS},
    "debezium-schemas": {"topics": _ENVELOPE, "debezium": {**_STRINGS, "schemas_enable": True}},
    "connect": {"values": {"schemas": "connect", "bytea": "base64", "documents": "string"}},
}
"""What the bridge's configuration has for it."""
EMBEDS_DOCUMENTS: Final[frozenset[ValueFormat]] = frozenset({"json", "json-schema"})
"""In all others a document is a string, so that it keeps its digits and is told apart from NULL."""
WITH_REGISTRY: Final[frozenset[ValueFormat]] = frozenset({"avro", "json-schema", "protobuf"})


@dataclass(frozen=True, slots=True)
class Fed:
    """A topic that nobody writes any more.

    Attributes:
        last: by partition, the offset of the last record: who has read so far has read all.
        expected: the rows of the source.
        connector: what ``cdc connect-schema`` prints for it.
        replica_dsn: an empty database, for one reader that writes into one.
    """

    bootstrap: str
    topic: str
    value_format: ValueFormat
    registry_url: str
    last: Mapping[int, int]
    expected: Rows
    connector: Mapping[str, str]
    replica_dsn: str

    def arguments(self) -> list[str]:
        """For a program, in this order."""
        last = json.dumps({str(partition): offset for partition, offset in self.last.items()})
        return [self.bootstrap, self.topic, self.value_format, self.registry_url, last]

    def newest_schema(self) -> str:
        """What the registry has for it, as docs/readers.md asks for it."""
        with urllib.request.urlopen(
            f"{self.registry_url}/subjects/{self.topic}-value/versions/latest/schema"
        ) as answer:
            return bytes(answer.read()).decode()


def feed(deployment: Deployment, value_format: ValueFormat) -> Fed:
    """Let a bridge publish the life of the table, with aborted records of somebody else in it, and stop the bridge."""
    with deployment.source.connect() as connection:
        table.create(connection)
        if value_format == "connect":
            table.keep_finite(connection, ("ratio", "measure"))
        if deployment.settings.get("debezium", {}).get("decimal_handling_mode") == "precise":
            table.keep_finite(connection, ("exact",))
        if value_format == "debezium":  # Flink's debezium-json wants each old row
            connection.execute("ALTER TABLE matrix REPLICA IDENTITY FULL")
        deployment.start_bridge()
        deployment.wait_backfilled(table.NAME)
        table.change(connection)
        deployment.wait_published()
        _plant(deployment.bootstrap, deployment.records(table.NAME))
        table.touch(connection)
    deployment.wait_published()
    last = {each.partition: each.offset for each in deployment.records(table.NAME)}
    assert len(last) == deployment.settings["topics"]["partitions"], "a partition is empty"
    deployment.bridge.stop()
    with pinned(deployment.source.dsn) as source:
        expected = table_rows(source)
    return Fed(
        bootstrap=deployment.bootstrap,
        topic=deployment.topic(table.NAME),
        value_format=value_format,
        registry_url=deployment.settings.get("registry", {}).get("url", ""),
        last=last,
        expected=expected,
        connector=_connector(deployment) if value_format in ("json", "debezium-schemas", "connect") else {},
        replica_dsn=deployment.replica.dsn,
    )


def _connector(deployment: Deployment) -> dict[str, str]:
    said = deployment.command("connect-schema", table.NAME)
    printed: dict[str, str] = json.loads(said[: said.rindex("}") + 1])["config"]
    return printed


def _plant(bootstrap: str, records: Sequence[StoredRecord]) -> None:
    """Abort a transaction, in each partition, that deletes a row and turns another one back."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{records[0].topic}-aborted"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in {each.partition for each in records}:
        turned, deleted = _victims([each for each in records if each.partition == partition])
        for key, value in (turned, deleted):
            producer.produce(records[0].topic, value, key, partition)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


def _victims(records: Sequence[StoredRecord]) -> tuple[tuple[bytes, bytes | None], tuple[bytes, bytes | None]]:
    """A row that had another value before, with that value, and another row that is there."""
    newest = {each.key: each.value for each in records}
    former = {
        each.key: each.value
        for each in records
        if each.value is not None and newest[each.key] not in (None, each.value)
    }
    turned, value = next((key, value) for key, value in former.items() if key is not None)
    deleted = next(key for key, value in newest.items() if value is not None and key not in (None, turned))
    assert deleted is not None
    return (turned, value), (deleted, None)
