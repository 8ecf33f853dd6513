"""History topics as tests look at them, and the oracle: the history tells the state topic's records, one by one."""

from __future__ import annotations

from collections import defaultdict

from cdc.contract.formats.opener import ValueOpener
from cdc.contract.history import HistoryRecord, parse_history
from cdc.contract.naming import history_topic, schemas_topic
from cdc.contract.ports import StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.definitions import read_definitions
from tests.support.deployment import Deployment
from tests.support.topic_audit import read_records


def history_of(deployment: Deployment, table: str) -> list[StoredRecord]:
    """Every committed record of a table's history."""
    return read_records(deployment.bootstrap, [history_topic(deployment.topic(table))])


def parsed(deployment: Deployment, table: str) -> list[HistoryRecord]:
    """The same in the order of the stream."""
    records = [parse_history(record.value or b"") for record in history_of(deployment, table)]
    return sorted(records, key=lambda each: each.position)  # stable: both records of a moved key are in one test topic


def fold(records: list[StoredRecord]) -> dict[bytes, bytes]:
    """The last ``new`` of each key."""
    rows: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        assert record.value is not None
        _, _, rest = record.value.partition(b',"new":')
        new = rest[: rest.rindex(b',"old":')]
        rows[record.key] = new
    return {key: new for key, new in rows.items() if new != b"null"}


def assert_history(deployment: Deployment, *tables: str) -> None:
    """Table = fold of the state topic, and the history has each of its records once, in its order and its partition.

    The state topics must not have been compacted yet.
    """
    deployment.assert_published(*tables)
    admin = BrokerAdmin({"bootstrap.servers": deployment.bootstrap})
    opener = ValueOpener(read_definitions(admin, schemas_topic(deployment.name)))
    for table in tables:
        state, history = deployment.records(table), history_of(deployment, table)
        assert state, f"{table}: no record, nothing is shown"
        wanted, found = _by_partition(state), _by_partition(history)
        assert found.keys() == wanted.keys()
        for partition, records in wanted.items():
            told = found[partition]
            for one, other in zip(records, told, strict=False):
                assert (other.key, other.header) == (one.key, one.header)
                assert other.value is not None
                new = b"null" if one.value is None else opener.json(one.value)
                assert b',"new":%b,"old":' % new in other.value
                _assert_header(other)
            assert len(told) == len(records)
        latest = {record.key: record.value for record in state}
        live = {key: opener.json(value) for key, value in latest.items() if value is not None}
        assert {**fold(history)} == live


def _assert_header(record: StoredRecord) -> None:
    fields = dict(pair.split("=", 1) for pair in record.header.decode().split(";"))
    told = parse_history(record.value or b"")
    assert told.op == fields["op"] or (fields["op"] == "u" and told.op in "cd")
    assert (str(told.position.lsn), str(told.position.seq)) == (fields["lsn"], fields["seq"])
    assert str(told.xid) == fields.get("xid", "None")
    assert (str(told.ts), told.schema, told.is_newer) == (fields["ts"], fields["schema"], "toast" in fields)


def _by_partition(records: list[StoredRecord]) -> dict[int, list[StoredRecord]]:
    found: dict[int, list[StoredRecord]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return dict(found)
