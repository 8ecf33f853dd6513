"""The head of an answer, as it is sent."""

from __future__ import annotations

import pytest

from cdc.views.http.protocol import head_of
from cdc.views.query.answer import Answer

USUAL = [(b"date", b"now")]


def test_a_head() -> None:
    assert head_of(Answer(200, [(b"etag", b'"1"')], b"{}"), USUAL) == (
        b'HTTP/1.1 200 OK\r\ndate: now\r\ncontent-type: application/json\r\ncontent-length: 2\r\netag: "1"\r\n\r\n'
    )


def test_a_head_without_content() -> None:
    assert head_of(Answer(304, [(b"etag", b'"1"')], b""), USUAL) == (
        b'HTTP/1.1 304 Not Modified\r\ndate: now\r\netag: "1"\r\n\r\n'
    )


@pytest.mark.parametrize("value", [b"x\r\nset-cookie: y", b"x\ny", b"x\ry"])
def test_a_value_that_would_be_another_header(value: bytes) -> None:
    with pytest.raises(ValueError, match="line break"):
        head_of(Answer(200, [(b"cdc-reason", value)], b""), USUAL)
