"""One row as it was at an earlier moment, from the history of its table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import orjson

from cdc.base.config import Config
from cdc.base.errors import CdcError, ConfigError, TopicRefused
from cdc.base.lsn import LSN
from cdc.base.table_names import parts
from cdc.base.web.problem import Problem, sentences
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.formats.written_key import key_json
from cdc.contract.naming import history_topic, schemas_topic
from cdc.contract.patterns import in_scope
from cdc.contract.record import TableSchema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.definitions import read_definitions
from cdc.topics.history.key import key_columns, record_key
from cdc.topics.history.scan import KeyScan
from cdc.topics.history.trail import Moment, RowThen, parse_moment, row_at
from cdc.topics.lookup.scan import key_in_topic
from cdc.views.query.keys import KeyValues
from cdc.views.table.facts import TableFacts


class Then(NamedTuple):
    """A row as it was; no row if there was none.

    Attributes:
        row: JSON text; None if there was no row.
        because: how that is known.
        moment: the moment that was asked for, as an LSN or an ISO time.
    """

    row: bytes | None
    because: str
    moment: str


class Past:
    """Reads histories. Each call reads one partition from Kafka and blocks, so call it in a thread.

    Args:
        config: the configuration of the deployment whose histories are read.
    """

    def __init__(self, config: Config) -> None:
        self._config: Final = config

    def row(self, table: TableFacts, key: KeyValues, as_of: str, shown: LSN) -> Then:
        """Returns a row as it was at a moment.

        Args:
            table: the row's table.
            key: the row's key.
            as_of: an LSN, or an ISO time.
            shown: the view's LSN. A later LSN is refused: for the view, it lies in the future.

        Raises:
            Problem: ``bad-parameter`` or ``no-history``.
            TopicUnavailable: Kafka does not answer.
        """
        try:
            moment = parse_moment(as_of)
        except ConfigError as error:
            raise Problem("bad-parameter", f"as_of: {error.message}; {error.remedy}.") from None
        _check_past(moment, shown)
        if table.key_kind != "columns" or not in_scope(*parts(table.name), self._config.topics.history, ()):
            raise Problem(
                "no-history",
                f"No history is kept of {table.name}. Add the table to topics.history and restart the bridge; "
                "the history begins with the next changes.",
            )
        try:
            then = self._read(table, key, moment)
        except (TopicRefused, ConfigError) as error:
            raise Problem("no-history", sentences(error.message, error.remedy)) from None
        shown_moment = str(moment) if isinstance(moment, LSN) else moment.isoformat()
        return Then(None if then.row is None else _as_json(then), then.because, shown_moment)

    def _read(self, table: TableFacts, key: KeyValues, moment: Moment) -> RowThen:
        options = self._config.kafka.client_options()
        admin = BrokerAdmin(options)
        schemas = _of_topic(read_definitions(admin, schemas_topic(self._config.name)), table.topic)
        wanted = record_key(key_json(key, [(column.name, column.sql_type) for column in table.key]), schemas)
        wanted = key_in_topic(options, table.topic, wanted, key_columns(schemas, wanted), TopicKeys(schemas))
        scan = KeyScan(admin, table.topic, history_topic(table.topic), wanted)
        trail = scan.trail(schemas)
        return row_at(trail, moment, lambda: scan.current(trail, schemas))


def _of_topic(definitions: Sequence[TableSchema], topic: str) -> list[TableSchema]:
    schemas = [each for each in definitions if each.topic == topic]
    if not schemas:
        raise CdcError(
            f"the __schemas topic has no definition of {topic}",
            remedy="ask for the rows as they are now; reading the past needs the definitions",
        )
    return schemas


def _check_past(moment: Moment, shown: LSN) -> None:
    if isinstance(moment, datetime) and moment > datetime.now(UTC):
        raise Problem("bad-parameter", f"as_of {moment.isoformat()} is in the future.")
    if isinstance(moment, LSN) and moment > shown:
        raise Problem("bad-parameter", f"The view shows {shown}, not as_of {moment} yet; wait for it with min_lsn.")


def _as_json(then: RowThen) -> bytes:
    assert then.row is not None
    members = (orjson.dumps(name) + b":" + text.encode() for name, text in then.row.items())
    return b"{" + b",".join(members) + b"}"
