"""Turns the rows of an outbox table into events: topic, key, value and headers. Pure."""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cdc.base.errors import EncodeError, SourceRefused
from cdc.base.lsn import LSN
from cdc.contract.change import Relation, Row
from cdc.contract.kinds import Kind, kind_of_column
from cdc.contract.naming import is_topic_name
from cdc.contract.record import EventParts
from cdc.contract.schema import table_schema

Event: TypeAlias = tuple[str, bytes, bytes | None, EventParts]
"""Topic, key, value, and what else the event has."""

_HEX: Final = b"\\x"
_PIECES: Final = re.compile(r"\{([^{}]+)\}|([^{}]+)")


@dataclass(frozen=True, slots=True)
class OutboxRule:
    """Which columns of an outbox table an event is made of: their names, and the topic's template.

    Attributes:
        headers: the column of each further header, by the header's name.
    """

    topic: str
    event_id: str
    key: str
    payload: str
    headers: Mapping[str, str]


class OutboxEncoder:
    """Makes the events of one version of an outbox table.

    Args:
        relation: as the stream described it.
        rule: which of its columns is what.

    Raises:
        SourceRefused: the table lacks one of these columns.

    Attributes:
        fingerprint: the fingerprint of the table's definition, for record headers.
    """

    def __init__(self, relation: Relation, rule: OutboxRule) -> None:
        self._relation = relation
        self._rule = rule
        self._places = {column.name: place for place, column in enumerate(relation.columns)}
        self._kinds = [kind_of_column(column) for column in relation.columns]
        self._id, self._key, self._payload = map(self._place, (rule.event_id, rule.key, rule.payload))
        self._headers = [(name, self._place(column)) for name, column in rule.headers.items()]
        # Each piece is a column's place, or a part of the name
        self._topic = [self._place(column) if column else text for column, text in _PIECES.findall(rule.topic)]
        self.fingerprint = table_schema(relation, (), "").fingerprint

    def event(self, row: Row, commit_lsn: LSN) -> Event:
        """Returns the event that a new row stands for.

        Args:
            row: the row, as the stream sent it.
            commit_lsn: of its transaction, for errors.

        Raises:
            EncodeError: the row does not give a topic that Kafka allows, or it has no id.
        """
        event_id = self._bytes(row, self._id)
        if event_id is None:
            raise self._refusal(row, commit_lsn, f"column {self._rule.event_id} with the event's id is NULL")
        topic = "".join([each if isinstance(each, str) else self._text(row, each, commit_lsn) for each in self._topic])
        if not is_topic_name(topic):
            raise self._refusal(row, commit_lsn, f"{topic!r} cannot be the name of a topic")
        key = self._bytes(row, self._key)
        headers = [("id", event_id)]
        headers += [(name, value) for name, place in self._headers if (value := self._bytes(row, place)) is not None]
        return topic, key or b"", self._bytes(row, self._payload), EventParts(event_id, key is not None, tuple(headers))

    def _place(self, column: str) -> int:
        if column not in self._places:
            name = self._relation.qualified_name
            raise SourceRefused(
                f"outbox table {name} has no column {column!r}, which source.outbox names",
                remedy=f"correct source.outbox for {name}; its columns are {', '.join(self._places)}",
            )
        return self._places[column]

    def _bytes(self, row: Row, place: int) -> bytes | None:
        cell = row[place]
        if not isinstance(cell, bytes):
            return None
        kind = self._kinds[place]
        if kind.kind is Kind.BYTES and not kind.is_array:
            return unhexlify(cell.removeprefix(_HEX))
        return cell

    def _text(self, row: Row, place: int, commit_lsn: LSN) -> str:
        cell = row[place]
        if not isinstance(cell, bytes):
            column = self._relation.columns[place].name
            raise self._refusal(row, commit_lsn, f"column {column} is NULL, and the topic's name needs it")
        return cell.decode(errors="replace")

    def _refusal(self, row: Row, commit_lsn: LSN, problem: str) -> EncodeError:
        name, cell = self._relation.qualified_name, row[self._id]
        event_id = cell.decode(errors="replace") if isinstance(cell, bytes) else "NULL"
        return EncodeError(
            f"outbox table {name}, event {event_id} at LSN {commit_lsn}: {problem}",
            remedy=f"the row is in the WAL and stays there: set source.outbox: {{{name}: {{topic: …}}}} or its other "
            "columns so that the row has a place, start, and set them back later; nothing was skipped",
        )
