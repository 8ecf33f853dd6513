"""A broker's answer is not trusted: whatever is cut off is an error with a type."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from cdc.base.errors import DecodeError
from cdc.kafka.wire import AnswerReader, compact_text, text


def test_strings_as_both_kinds_of_versions_write_them() -> None:
    assert AnswerReader(text("käse")).text() == "käse"
    for length in (0, 1, 126, 127, 128, 20_000):
        assert AnswerReader(compact_text("x" * length)).compact_text() == "x" * length


def test_null_is_empty() -> None:
    assert AnswerReader(struct.pack(">h", -1)).text() == AnswerReader(b"\0").compact_text() == ""
    assert bytes(AnswerReader(struct.pack(">i", -1)).block()) == b""


def test_tagged_fields_are_passed_over() -> None:
    answer = AnswerReader(b"\2\0\3abc\1\1x" + b"\7")
    answer.skip_tags()
    assert answer.take(">B") == (7,)


@pytest.mark.parametrize(
    ("whole", "read"),
    [
        (text("abc"), AnswerReader.text),
        (compact_text("abc"), AnswerReader.compact_text),
        (struct.pack(">i", 3) + b"abc", AnswerReader.block),
    ],
)
def test_a_truncated_answer(whole: bytes, read: Callable[[AnswerReader], object]) -> None:
    for length in range(len(whole)):
        with pytest.raises(DecodeError):
            read(AnswerReader(whole[:length]))
