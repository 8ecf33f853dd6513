"""What an SQLSTATE of the source amounts to, in the one place that decides it."""

from __future__ import annotations

import pytest

from cdc.base.errors import SourceAltered, SourceBusy, SourceRefused, SourceUnavailable
from cdc.bridge.source.sqlstates import source_error

GRANT = "GRANT SELECT ON t TO r;"


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        (None, SourceUnavailable),
        ("", SourceUnavailable),
        ("08006", SourceUnavailable),
        ("08P01", SourceRefused),
        ("25P03", SourceUnavailable),
        ("25P04", SourceUnavailable),
        ("57P01", SourceUnavailable),
        ("57P05", SourceUnavailable),
        ("40001", SourceBusy),
        ("40P01", SourceBusy),
        ("53300", SourceBusy),
        ("55P03", SourceBusy),
        ("57014", SourceBusy),
        ("XX000", SourceBusy),
        ("42P01", SourceAltered),
        ("42703", SourceAltered),
        ("42883", SourceAltered),
        ("3F000", SourceAltered),
        ("42501", SourceRefused),
        ("42601", SourceRefused),
        ("22P02", SourceRefused),
        ("XX001", SourceRefused),
    ],
)
def test_what_a_state_means(sqlstate: str | None, kind: type[Exception]) -> None:
    error = source_error("reading public.t", sqlstate, "words of\n  the server", remedy=GRANT, role="r")
    assert type(error) is kind
    assert "reading public.t" in error.message
    assert "words of the server" in error.message
    assert error.retryable == (kind is not SourceRefused)
    assert (error.remedy == GRANT) == (sqlstate == "42501")


def test_row_level_security_is_not_mended_by_a_grant() -> None:
    said = 'query would be affected by row-level security policy for table "t"'
    assert source_error("reading t", "42501", said, remedy=GRANT, role="r").remedy == "ALTER ROLE r BYPASSRLS;"


def test_what_else_can_be_done() -> None:
    read_only = source_error("making a publication", "25006", "cannot execute in a read-only transaction", remedy=GRANT)
    assert "target_session_attrs=read-write" in read_only.remedy
    assert "not UTF-8" in source_error("reading the catalog", "22021", "invalid byte sequence", remedy=GRANT).remedy
