"""Reads the definitions that records refer to from the schemas topic: a table's columns and their forms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from cdc.base.errors import DecodeError
from cdc.contract.record import TableSchema
from cdc.contract.schema import parse_schema
from cdc.spark.errors import TopicUnreadable
from cdc.spark.mirror.rows import LakeRecordForm
from cdc.spark.offsets import Brokers
from cdc.spark.values.columns import kind_of


class Definitions:
    """All definitions of some topics, the most recently published last.

    Args:
        brokers: the cluster to read them from.
        schemas_topic: the topic that holds them.
        topics: the topics whose definitions are needed.

    Raises:
        TopicUnreadable: a topic has no definition, or the schemas topic holds a record that is not one.
    """

    def __init__(self, brokers: Brokers, schemas_topic: str, topics: Collection[str]) -> None:
        self._brokers = brokers
        self._schemas_topic = schemas_topic
        self._topics = topics
        self._schemas: dict[str, TableSchema] = {}
        self.read()
        without = sorted(set(topics) - {each.topic for each in self._schemas.values()})
        if without:
            raise TopicUnreadable(
                f"{schemas_topic} has no definition for {', '.join(without)}",
                remedy="run the bridge until it publishes the table's first row, then start again",
            )

    def read(self) -> None:
        """Reads all definitions again. The bridge writes each one before the first record that refers to it."""
        try:
            for _, value in self._brokers.read_all(self._schemas_topic):
                if value is not None:
                    schema = parse_schema(value)
                    self._schemas.pop(schema.fingerprint, None)
                    self._schemas[schema.fingerprint] = schema
        except DecodeError as error:
            raise TopicUnreadable(f"topic {self._schemas_topic}: {error.message}", remedy=error.remedy) from error

    def know(self, fingerprints: Collection[str | None]) -> bool:
        """Tells whether all these definitions are known."""
        return all(each in self._schemas for each in fingerprints)

    def know_written(self, found: Iterable[tuple[str, int]]) -> bool:
        """Tells whether these schemas of Avro values, given by topic and id, are all known."""
        known = {(schema.topic, each.schema_id) for schema in self._schemas.values() for each in schema.written}
        return known.issuperset(found)

    def know_enveloped(self, topics: Iterable[str]) -> bool:
        """Tells whether the values of all these topics are known to be change events."""
        return all(any(each.envelope or each.was_enveloped for each in self.of(topic)) for topic in topics)

    def of(self, topic: str) -> Sequence[TableSchema]:
        """Returns all definitions of a topic."""
        return [each for each in self._schemas.values() if each.topic == topic]

    def newest(self, topic: str) -> TableSchema:
        """Returns the most recently published definition of a topic."""
        return self.of(topic)[-1]

    def columns(self, topic: str) -> dict[str, str]:
        """Returns every column that any definition has, with the SQL type in the newest definition that has it."""
        columns: dict[str, str] = {}
        for schema in reversed(self.of(topic)):
            for column in schema.columns:
                columns.setdefault(column.name, column.sql_type)
        return columns

    def types(self, topic: str) -> dict[str, tuple[str, ...]]:
        """Returns for each column all SQL types that definitions give it."""
        types: dict[str, dict[str, None]] = {name: {} for name in self.columns(topic)}
        for schema in self._schemas.values():
            if schema.topic == topic:
                for column in schema.columns:
                    types[column.name][column.sql_type] = None
        return {name: tuple(found) for name, found in types.items()}

    def form(self, topic: str) -> LakeRecordForm:
        """Returns how executors read the records of a topic."""
        members: Mapping[str, Mapping[str, str]] = {
            fingerprint: {column.name: column.sql_type for column in schema.columns}
            for fingerprint, schema in self._schemas.items()
            if schema.topic == topic
        }
        return LakeRecordForm(
            topic,
            tuple(self.columns(topic)),
            {
                fingerprint: {name: kind_of(sql_type) for name, sql_type in columns.items()}
                for fingerprint, columns in members.items()
            },
        )
