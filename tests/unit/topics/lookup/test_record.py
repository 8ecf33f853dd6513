"""Records of tables, as they are shown: what another program wrote is told of, whatever its bytes are."""

from __future__ import annotations

import pytest

from cdc.base.errors import DecodeError
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.ports import StoredRecord
from cdc.topics.lookup.record import of_table, of_topic

HEADER = b"v=1;op=u;lsn=0/1925728;seq=17;xid=734;ts=1795190486566123;schema=3f2a91c05b7e6d14"


@pytest.mark.parametrize(
    ("key", "value"),
    [(b'{"id":1}', b'{"name":"\xff"}'), (b'{"id":"\xff"}', b"{}"), (b'{"id":1}', b"\xff\xfe"), (b"\xff", None)],
)
def test_bytes_that_are_no_text(key: bytes, value: bytes | None) -> None:
    record = StoredRecord("shop.users", 3, 17, key, value, HEADER)
    with pytest.raises(DecodeError, match=r"offset 17 of .* 'shop.users' is not the bridge's: .*UTF-8"):
        of_table(record, ValueOpener([]), TopicKeys([]))
    shown = of_topic(record)
    assert shown.key.decode()
    assert shown.row is None or shown.row.decode()


def test_a_record_of_the_bridge() -> None:
    shown = of_table(
        StoredRecord("shop.users", 3, 17, b'{"id":1}', '{"name":"Ada ä"}'.encode(), HEADER),
        ValueOpener([]),
        TopicKeys([]),
    )
    assert (shown.key, shown.row, str(shown.lsn)) == (b'{"id":1}', '{"name":"Ada ä"}'.encode(), "0/1925728")


def test_a_value_whose_schema_is_not_on_record_is_told() -> None:
    record = StoredRecord("shop.users", 3, 17, b'{"id":1}', b"\0\0\0\0\7x", HEADER)
    with pytest.raises(DecodeError, match=r"offset 17 of .* the value has schema 7, which is in no definition"):
        of_table(record, ValueOpener([]), TopicKeys([]))
