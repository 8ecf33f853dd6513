"""Rows as a store keeps them."""

from __future__ import annotations

import json

import pytest

from cdc.base.lsn import LSN
from cdc.views.table.rows import StoredRow, pack, unpack

ODD = b'{"id":"],\\"row\\":","at":[1]}'


@pytest.mark.parametrize("lsn", [None, LSN(0x1925728)])
@pytest.mark.parametrize(("key", "row"), [(b'{"id":42}', b'{"id":42,"name":"]}"}'), (ODD, ODD), (b'"x"', b"null")])
def test_what_was_packed_comes_back(key: bytes, row: bytes, lsn: LSN | None) -> None:
    stored = pack(key, row, 3, 17, b"null" if lsn is None else b'"%s"' % str(lsn).encode(), 1795190486566123)
    assert unpack(stored) == StoredRow(key, row, 3, 17, lsn, 1795190486566123)
    assert json.loads(stored)["row"] == json.loads(row)
