"""Planted damage with every kind of header: what another program wrote is named, and its keys are never identical.

One table of kinds, each on a right row, a wrong row and a deleted row; all of them are in one topic, for one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.partition import partition_of
from cdc.contract.ports import StoredRecord
from cdc.spark.report.model import TableReport
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for, reconciled, table_of
from tests.support.servers import Database

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]

TABLE, OTHER, PARTITIONS = "public.planted", "public.beside", 3
LAG_MS: Final = 900_000
"""Longer than a run takes on a slow machine."""
AHEAD: Final = 50_000_000
"""Transactions by which the counter of another system may be ahead."""
DAY_US: Final = 86_400_000_000

Change = Callable[[dict[str, str]], None]


def _set(**members: str) -> Change:
    return lambda fields: fields.update(members)


def _without(name: str) -> Change:
    def change(fields: dict[str, str]) -> None:
        del fields[name]

    return change


def _backfilled(snap: str) -> Change:
    def change(fields: dict[str, str]) -> None:
        fields.pop("xid", None)
        ts, schema = fields.pop("ts"), fields.pop("schema")
        fields.update(op="r", snap=snap, ts=ts, schema=schema)

    return change


@dataclass(frozen=True)
class Kind:
    """A header that somebody may write.

    Attributes:
        change: what becomes of a header of the bridge's; None for the bytes of ``header`` as they are.
        header: None for no header at all.
        is_foreign: whether the bridge can never have written it.
    """

    change: Change | None = None
    header: bytes | None = None
    is_foreign: bool = True


def kinds(now: Mapping[str, int], of_other_table: str) -> dict[str, Kind]:
    """All of them, by name; ``now`` is where the source stands."""
    xid, lsn, ts = now["xid"], now["lsn"], now["ts"]
    plausible = {
        "a copy": Kind(_set(), is_foreign=False),
        "a copy that says more": Kind(_set(later="1"), is_foreign=False),
        "lsn from the past": Kind(_set(lsn="0/1"), is_foreign=False),
        "xid from the past": Kind(_set(xid="3"), is_foreign=False),
        "snap from the past": Kind(_backfilled("3:3:"), is_foreign=False),
        "ts from the past": Kind(_set(ts="0"), is_foreign=False),
        "ts from the future": Kind(_set(ts=str(ts + DAY_US)), is_foreign=False),  # clocks are wrong at times
    }
    absent = {f"without {name}": Kind(_without(name)) for name in ("v", "op", "lsn", "seq", "xid", "ts", "schema")}
    malformed = {
        f"{name}={text[:24]}": Kind(_set(**{name: text}))
        for name, texts in {
            "v": ("", "x", "2", "01"),
            "op": ("", "x", "cu"),
            "lsn": ("", "zz", "0/", "-1/0", "0" * 17 + "/1", "F" * 40 + "/0"),
            "seq": ("", "x", "-1", "9" * 30),
            "xid": ("", "x", "-1", "9" * 30),
            "ts": ("", "x", "1.5", "9" * 18, "9" * 30),
            "schema": ("", "x", "G" * 16),
        }.items()
        for text in texts
    } | {f"snap={snap[:24]}": Kind(_backfilled(snap)) for snap in ("", "x", "1", "3:2:", "3:x:", f"3:{'9' * 30}:")}
    future = {
        "lsn from the future": Kind(_set(lsn=f"{(lsn >> 32) + 1:X}/0")),
        "lsn beyond all": Kind(_set(lsn="FFFFFFFF/FFFFFFFF")),
        "xid from the future": Kind(_set(xid=str(xid + AHEAD))),
        "xid beyond all": Kind(_set(xid="9" * 18)),
        "xid that runs": Kind(_set(xid=str(now["running"]))),
        "snap from the future": Kind(_backfilled(f"{xid + AHEAD}:{xid + AHEAD}:")),
        "snap that sees who runs": Kind(_backfilled(f"{xid}:{xid}:")),
    }
    others = {
        "no header": Kind(),
        "empty": Kind(header=b""),
        "garbage": Kind(header=b"garbage"),
        "no text": Kind(header=b"\xff\xfe;v=1"),
        "a member twice": Kind(lambda fields: fields.update(schema=fields["schema"] + ";xid=x")),
        "both authors": Kind(lambda fields: fields.update(schema=fields["schema"] + ";snap=3:3:")),
        "unknown schema": Kind(_set(schema="0" * 16)),
        "another table's schema": Kind(_set(schema=of_other_table)),
    }
    return plausible | absent | malformed | future | others


FORMS: Final = ("right", "wrong", "deleted", "ghost")


class Plants:
    """Writes records of every kind, each under keys of its own, and knows what must be said of them."""

    def __init__(self, deployment: Deployment, found: Mapping[str, Kind]) -> None:
        self.deployment = deployment
        self.expected: dict[str, tuple[str, str]] = {}
        self.foreign: set[str] = set()
        self._producer = Producer({"bootstrap.servers": deployment.bootstrap})
        self._records = {each.key: each for each in deployment.records(TABLE)}
        for number, (name, kind) in enumerate(found.items()):
            for place, form in enumerate(FORMS):
                self._plant(name, kind, form, 1 + len(FORMS) * number + place)
        self._stray(len(found) * len(FORMS) + 1)
        assert self._producer.flush(30) == 0

    def _plant(self, name: str, kind: Kind, form: str, number: int) -> None:
        key, record = b'{"id":%d}' % number, self._record(number)
        assert record.value is not None
        if form == "ghost":
            key, value = b'{"id":%d}' % -number, record.value.replace(b'"id":%d' % number, b'"id":%d' % -number)
        else:
            value = record.value if form == "right" else record.value.replace(b"right", b"wrong")
        header = kind.header
        if kind.change is not None:
            fields = dict(each.split("=", 1) for each in record.header.decode().split(";"))
            kind.change(fields)
            header = ";".join(f"{each}={text}" for each, text in fields.items()).encode()
        self._write(key, None if form == "deleted" else value, header)
        difference = {"wrong": "value_mismatch", "deleted": "missing_in_topic", "ghost": "extra_in_topic"}.get(form, "")
        if difference or kind.is_foreign:
            self.expected[key.decode()] = (difference or "foreign", f"{name}, {form}")
        if kind.is_foreign:
            self.foreign.add(key.decode())

    def _stray(self, number: int) -> None:
        """In a wrong partition: a right row, and a tombstone, which does no harm."""
        for place, value in ((number, self._record(number).value), (number + 1, None)):
            key = b'{"id":%d}' % place
            elsewhere = (partition_of(key, PARTITIONS) + 1) % PARTITIONS
            self._write(key, value, self._record(place).header, elsewhere)
        self.expected[f'{{"id":{number}}}'] = ("extra_in_topic", "wrong partition")

    def _record(self, number: int) -> StoredRecord:
        return self._records[b'{"id":%d}' % number]

    def _write(self, key: bytes, value: bytes | None, header: bytes | None, partition: int = -1) -> None:
        at = partition_of(key, PARTITIONS) if partition < 0 else partition
        headers: Any = None if header is None else [("cdc", header)]
        self._producer.produce(self.deployment.topic(TABLE), value, key, at, headers=headers)

    def assert_told(self, table: TableReport) -> None:
        """Every planted key, by its class, and no other; what is foreign says so, and where it lies."""
        found = {each.key: each for each in table.samples if each.side == "topic"}
        told = {key: each.difference for key, each in found.items()}
        wanted = {key: difference for key, (difference, _) in self.expected.items()}
        wrong = {
            key: (self.expected.get(key), told.get(key)) for key in wanted | told if wanted.get(key) != told.get(key)
        }
        assert not wrong, table.reason
        named = {key for key, each in found.items() if each.cause.startswith("foreign record: ")}
        assert {key: self.expected[key] for key in named ^ self.foreign} == {}
        for key in self.foreign:
            assert f"partition {found[key].partition}" in found[key].cause or found[key].partition is None
            assert "1970" not in found[key].cause, found[key].cause
            assert "?" not in found[key].cause.split("(")[0], found[key].cause


@pytest.fixture
def deployment(deploy: Deploy, database: Database) -> Deployment:
    """A bridge without a sink, two tables, and many rows to plant beside."""
    for table in (TABLE, OTHER):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)")
        database.execute(f"INSERT INTO {table} SELECT n, 'right' FROM generate_series(1, 300) n")
    made = deploy(
        topics={"partitions": PARTITIONS, "min_compaction_lag_ms": LAG_MS, "max_compaction_lag_ms": 2 * LAG_MS}
    )
    made.start_bridge()
    made.wait_backfilled(TABLE, OTHER)
    # Streamed records have a transaction, which most of the kinds change.
    database.execute(f"UPDATE {TABLE} SET note = note")
    made.wait_published()
    return made


def standing(connection: Any) -> dict[str, int]:
    """Where the source is, and a transaction that goes on: the connection's."""
    row = connection.execute(
        "SELECT pg_current_xact_id()::text::bigint, pg_current_wal_insert_lsn() - '0/0',"
        " (extract(epoch FROM now()) * 1000000)::bigint"
    ).fetchone()
    return {"running": row[0], "xid": row[0] + 1, "lsn": int(row[1]), "ts": row[2]}


def schema_of(deployment: Deployment, table: str) -> str:
    """The definition that a table's records name."""
    header = deployment.records(table)[0].header.decode()
    return dict(each.split("=", 1) for each in header.split(";"))["schema"]


def test_no_key_that_another_program_wrote_is_identical(
    deployment: Deployment, database: Database, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    """A second system whose transaction ids were ahead wrote into the topic: IDENTICAL, exit 0, with wrong keys."""
    with database.connect() as connection, connection.transaction():
        found = kinds(standing(connection), schema_of(deployment, OTHER))
        assert len(found) * len(FORMS) + 2 <= 300
        plants = Plants(deployment, found)
        job = job_for(deployment, tmp_path / "run", spark_settings, samples=1000, replica=None)
        report = reconciled(job, spark)
    assert report.exit_code == 1, table_of(report, TABLE).reason
    said = deployment.command("topics", "lint", deployment.topic(TABLE), code=1)
    assert "are not this bridge's; the first: partition " in said, said
    assert table_of(report, OTHER).verdict == "identical", table_of(report, OTHER).reason
    table = table_of(report, TABLE)
    plants.assert_told(table)
    assert table.counts.in_flight == 0
    assert table.counts.foreign == sum(difference == "foreign" for difference, _ in plants.expected.values())
    assert table.counts.identical == 300 - sum(int(key.partition(":")[2][:-1]) > 0 for key in plants.expected)
