"""One history value → one change of the trail."""

from __future__ import annotations

import pytest

from cdc.base.errors import DecodeError
from cdc.spark.history.trail import change

HEAD = '{"v":1,"op":"%s","lsn":"0/1A","seq":2,"xid":%s,"ts":5,"schema":"beef",'


def value(op: str, new: str, old: str, xid: str = "7") -> bytes:
    return (HEAD % (op, xid) + f'"new":{new},"old":{old}}}').encode()


def test_an_update_with_the_whole_old_row_names_what_changed() -> None:
    found = change(value("u", '{"id":1,"n":"1.10","doc":{"a": 1}}', '{"id":1,"n":"1.1","doc":{"a": 1}}'))
    assert found["changed"] == ["n"]
    assert (found["lsn"], found["seq"], found["xid"], found["commit_us"]) == ("0/1A", 2, 7, 5)
    assert found["old_is_whole"]
    assert found["new"] == '{"id":1,"n":"1.10","doc":{"a": 1}}'


def test_what_is_not_known_is_not_guessed() -> None:
    found = change(value("u", '{"id":1,"n":2}', '{"id":1}'))
    assert (found["changed"], found["old_is_whole"]) == (None, False)
    found = change(value("r", '{"id":1}', "null", "null"))
    assert (found["old"], found["xid"], found["changed"]) == (None, None, None)


def test_foreign_values_are_refused() -> None:
    for bad in (b"null", b"{}", b'{"v":2}', b"\xff"):
        with pytest.raises(DecodeError, match="not of topic contract"):
            change(bad)
