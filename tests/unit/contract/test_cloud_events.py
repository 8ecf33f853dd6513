"""Headers of CloudEvents: required attributes, ids that tell records apart, and nothing for other topics."""

from __future__ import annotations

import json
import re

import pytest

from cdc.base.lsn import LSN
from cdc.contract.cloud_events import CloudEvents
from cdc.contract.formats.avro.binary import varint
from cdc.contract.header import HeaderStamp, enveloped, of_no_row
from cdc.contract.record import FormatName

FORMATS: dict[str, FormatName] = {
    "t": "json",
    "a": "avro",
    "p": "protobuf",
    "j": "json-schema",
}
EVENTS = CloudEvents("shop", FORMATS.get)
STAMP = HeaderStamp(LSN.parse("0/1925728"), 734, 1_795_190_486_566_123)


def headers(topic: str, key: bytes, value: bytes | None, op: str, seq: int = 17) -> dict[str, str]:
    found = EVENTS.headers(topic, key, value, STAMP.header(op, seq, "f" * 16))
    assert found is not None
    return {name: text.decode() for name, text in found}


def test_an_event_has_what_the_specification_requires() -> None:
    found = headers("t", b'{"id":7}', b"{}", "c")
    assert re.fullmatch("0-1925728-17-c-[0-9a-f]{16}", found.pop("ce_id"))
    assert found == {
        "ce_specversion": "1.0",
        "ce_source": "/shop/t",
        "ce_type": "cdc.insert",
        "ce_subject": '{"id":7}',
        "ce_time": "2026-11-20T16:01:26.566123Z",
        "content-type": "application/json",
    }


@pytest.mark.parametrize(
    ("topic", "content_type"), [("a", "application/avro"), ("p", "application/protobuf"), ("j", "application/json")]
)
def test_the_content_type_is_the_formats(topic: str, content_type: str) -> None:
    assert headers(topic, b"{}", b"\0", "u")["content-type"] == content_type


def test_a_key_in_avro_is_no_subject() -> None:
    """It is not text: this one has a byte that is not UTF-8, as each number from 64 on has."""
    assert "ce_subject" not in headers("a", b"\0\0\0\0\7\x80\1", b"\0", "c")


def test_a_null_value_is_an_event_without_data() -> None:
    types = {op: headers("t", b"{}", None, op) for op in "durt"}
    assert all("content-type" not in found for found in types.values())
    assert [types[op]["ce_type"] for op in "durt"] == ["cdc.delete", "cdc.delete", "cdc.delete", "cdc.truncate"]
    assert headers("t", b"{}", b"{}", "d")["ce_type"] == "cdc.delete"


def test_an_envelope_says_what_happened_to_its_key() -> None:
    header = enveloped(STAMP.header("u", 17, "f" * 16), b"precise.adaptive.bytes.json.plain")
    for op, kind in ((b"d", b"cdc.delete"), (b"c", b"cdc.insert"), (b"u", b"cdc.update"), (b"r", b"cdc.backfill")):
        value = b'{"before":null,"after":{"a":",\\"op\\":\\"u\\""},"op":"%b","ts_ms":1}' % op
        assert dict(EVENTS.headers("t", b"{}", value, header) or ())["ce_type"] == kind


@pytest.mark.parametrize("now", [0, 1, 63, 1_795_823_637_293_877_963, (1 << 63) - 1])
def test_an_envelope_in_avro_says_it_as_well(now: int) -> None:
    header = enveloped(STAMP.header("u", 17, "f" * 16), b"precise.adaptive.bytes.json.plain")
    end = b"".join(b"\x02" + varint(now // unit) for unit in (1_000_000, 1_000, 1))
    for op, kind in ((b"d", b"cdc.delete"), (b"c", b"cdc.insert"), (b"u", b"cdc.update"), (b"r", b"cdc.backfill")):
        for before in (b"", b"\x02u" * 20, b"\x02u" + end, end):
            value = b"\0\0\0\0\x07" + before + b"\x02" + op + end
            assert dict(EVENTS.headers("t", b"{}", value, header) or ())["ce_type"] == kind


def test_records_of_one_change_have_different_ids_and_the_same_record_has_the_same() -> None:
    changes = [(b"1", b"{}", "u", 1), (b"2", b"{}", "u", 1), (b"1", None, "u", 1), (b"1", b"{}", "u", 2),
               (b"1", None, "d", 1), (b"1", b"{}", "d", 1)]  # fmt: skip
    ids = [headers("t", *change)["ce_id"] for change in changes]
    assert len(set(ids)) == len(changes)
    assert ids == [headers("t", *change)["ce_id"] for change in changes]


def test_attributes_have_no_control_characters_and_mean_the_same_key() -> None:
    key = '{"id":"a\x7f\x85ü"}'.encode()
    subject = headers("t", key, b"{}", "c")["ce_subject"]
    assert not re.search("[\0-\x1f\x7f-\x9f]", subject)
    assert json.loads(subject) == {"id": "a\x7f\x85ü"}


def test_other_topics_have_none_and_records_without_the_header_cdc_neither() -> None:
    assert EVENTS.headers("t.history", b"{}", b"{}", STAMP.header("c", 1, "f" * 16)) is None
    sent: list[tuple[object, ...]] = []
    send = EVENTS.sender(lambda *record: sent.append(record))
    send("t", b"{}", b"{}", -1, None, None, 0, None)
    send("x", b"{}", b"{}", -1, None, None, 0, [("cdc", STAMP.header("c", 1, "f" * 16))])
    send("t", None, b"{}", 2, None, None, 0, [("cdc", of_no_row(STAMP.header("r", 1, "f" * 16)))])
    assert [record[:7] for record in sent[:2]] == [
        ("t", b"{}", b"{}", -1, None, None, 0),
        ("x", b"{}", b"{}", -1, None, None, 0),
    ]
    assert sent[0][7] is None
    names = [[name for name, _ in record[7]] for record in sent[1:] if isinstance(record[7], list)]
    assert names == [
        ["cdc"],
        ["cdc", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject"],
    ]
