"""Lesson: one topic holds rows under three definitions, written by a real bridge; what do readers see?"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg
from psycopg.rows import dict_row

from cdc.contract.header import parse_header
from cdc.contract.naming import schemas_topic, topic_name
from cdc.contract.ports import StoredRecord
from cdc.contract.record import TableSchema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import read_topic
from cdc.kafka.replay.definitions import read_definitions
from cdc.lab.demo.place import DemoPlace, place
from cdc.lab.demo.processes import Daemon, wait_for
from cdc.lab.learn.classroom import Classroom
from cdc.lab.proof.positions import fence, recorded_cut, table_states
from cdc.lab.stack.stack import GivenKafka, Stack

_TABLE = "CREATE TABLE customers (id int PRIMARY KEY, name text, fax text)"
_STEPS = (
    "INSERT INTO customers VALUES (1, 'Ann', '12')",
    "ALTER TABLE customers ADD vip boolean NOT NULL DEFAULT false",
    "INSERT INTO customers VALUES (2, 'Ben', '34', true)",
    "ALTER TABLE customers DROP fax",
    "INSERT INTO customers VALUES (3, 'Eve', true)",
)
_START_S = 60.0


def teach(room: Classroom) -> None:
    """Change a table's columns while a bridge and a sink are running."""
    page, stack = room.page, Stack(room.open_postgres(), GivenKafka(room.options["bootstrap.servers"]))
    here = room.exits.enter_context(place(stack))
    topic = topic_name(here.name, "public", "customers")
    with ExitStack() as exits:
        source, replica = (
            exits.enter_context(psycopg.connect(dsn, autocommit=True, row_factory=dict_row))
            for dsn in (here.source_dsn, here.replica_dsn)
        )
        source.execute(_TABLE)
        follow = exits.enter_context(_Bridge(here)).follow
        page.say("A bridge and a sink are running, and somebody executes this in the source:")
        page.table("The source", ("statement",), [(step,) for step in _STEPS])
        follow(_STEPS)

        records = _read(room, topic)
        page.table(
            f"What {topic} holds",
            ("partition", "offset", "definition", "value"),
            [(each.partition, each.offset, _definition(each)[:8], (each.value or b"").decode()) for each in records],
        )
        known = _known(room, schemas_topic(here.name))
        room.check(len({_definition(each) for each in records}) == 3, "three rows have three definitions")
        page.table(
            f"What {schemas_topic(here.name)} says of these definitions",
            ("definition", "columns"),
            [
                (name[:8], ", ".join(f"{column.name} {column.sql_type}" for column in known[name].columns))
                for name in dict.fromkeys(_definition(each) for each in records)
            ],
        )
        page.say(
            "A record stays as it was written. PostgreSQL sends nothing when you add or drop a column, because no row "
            "changes. The new definition arrives with the next row that does change. So a reader must understand every "
            "definition that was ever used. Each record names its own by a fingerprint in the header. And a column "
            "that a record lacks is not the same as NULL."
        )
        page.table("Ann, in three places", ("where", "row"), _ann(source, replica, records))
        page.say(
            "In the source, Ann got the default value of vip. Her record is older than the column, so the replica has "
            "NULL there. Any change of her row publishes it again; a backfill publishes every row again."
        )
        follow(["UPDATE customers SET name = name WHERE id = 1"])
        page.table(
            "Ann, after an update that changes nothing", ("where", "row"), _ann(source, replica, _read(room, topic))
        )
        seen, copied = _row(source), _row(replica)
        room.check(all(copied[name] == value for name, value in seen.items()), "source and replica agree on Ann")
        page.say(
            "Now all three agree on the columns that the source has. The replica also has "
            f"{_more(seen, copied)}: the sink never drops a column, because somebody's query may use it."
        )
    page.remember(
        "Old records stay for years: the key that changes least has the oldest form. Let readers look up the "
        "definition of each record, and do not take a missing column for NULL. If all rows need a new column at once, "
        "publish the table again.",
        "cdc backfill public.customers -c shop.yaml",
        "cdc get public.customers 1 -c shop.yaml",
    )


class _Bridge(ExitStack):
    """A bridge and a sink in one place, running until the context ends."""

    def __init__(self, here: DemoPlace) -> None:
        super().__init__()
        self._here = here
        here.write_config()
        self._daemons = [Daemon(command, here.config, here.directory / f"{command}.log") for command in ("run", "sink")]

    def __enter__(self) -> _Bridge:
        for daemon in self._daemons:
            self.enter_context(daemon)
        self._source = self.enter_context(psycopg.connect(self._here.source_dsn, autocommit=True))
        self._replica = self.enter_context(psycopg.connect(self._here.replica_dsn, autocommit=True))
        wait_for(
            # The first backfill is over then, too: it would publish rows as it finds them, with every new column.
            "replica that is exact",
            lambda: table_states(self._replica, self._here.name) == {"exact": 1},
            self._daemons,
            _START_S,
        )
        return self

    def follow(self, statements: Any) -> None:
        """Run statements in the source, and wait until the replica holds their effects."""
        for statement in statements:
            self._source.execute(statement)
        end = fence(self._source)

        def has_passed() -> bool:
            cut = recorded_cut(self._replica, self._here.name)
            return cut is not None and cut >= end

        wait_for(f"cut at {end} in the replica", has_passed, self._daemons, _START_S)


def _read(room: Classroom, topic: str) -> list[StoredRecord]:
    """Returns the newest record of each row, ordered by key."""
    records = {each.key: each for each in read_topic(BrokerAdmin(room.options), topic)}
    return [each for _, each in sorted(records.items())]


def _known(room: Classroom, topic: str) -> dict[str, TableSchema]:
    """Returns the definitions by their fingerprints."""
    return {each.fingerprint: each for each in read_definitions(BrokerAdmin(room.options), topic)}


def _definition(record: StoredRecord) -> str:
    return parse_header(record.header).schema


def _ann(
    source: psycopg.Connection[dict[str, Any]], replica: psycopg.Connection[dict[str, Any]], records: list[StoredRecord]
) -> list[tuple[str, str]]:
    return [
        ("the source", _written(_row(source))),
        ("her newest record", (records[0].value or b"").decode()),
        ("the replica", _written(_row(replica))),
    ]


def _row(connection: psycopg.Connection[dict[str, Any]]) -> dict[str, Any]:
    row = connection.execute("SELECT * FROM customers WHERE id = 1").fetchone()
    assert row is not None
    return row


def _written(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_sql(value)}" for name, value in row.items())


def _sql(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _more(row: dict[str, Any], copy: dict[str, Any]) -> str:
    return ", ".join(f"the column {name}" for name in copy if name not in row) or "the same columns"
