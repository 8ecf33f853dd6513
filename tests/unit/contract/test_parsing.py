"""A record that is not ours says of which kind it should be, and in which topic to look for who wrote it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdc.base.errors import DecodeError
from cdc.contract.backfill import parse_backfill, parse_request
from cdc.contract.history import parse_history
from cdc.contract.known_topic import parse_known_topic
from cdc.contract.membership import parse_membership
from cdc.contract.progress import parse_progress
from cdc.contract.repair import parse_repair_outcome, parse_repair_request
from cdc.contract.schema import parse_schema


@pytest.mark.parametrize(
    ("parse", "kind", "topic"),
    [
        (parse_backfill, "backfill", "progress"),
        (parse_request, "backfill request", "progress"),
        (parse_known_topic, "topic", "progress"),
        (parse_membership, "published", "progress"),
        (parse_progress, "progress", "progress"),
        (parse_repair_request, "repair request", "progress"),
        (parse_repair_outcome, "repair", "progress"),
        (parse_schema, "schema", "schemas"),
        (parse_history, "history", "history"),
    ],
)
def test_where_to_look(parse: Callable[[bytes], object], kind: str, topic: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse(b'{"v":2}' + b" " * 1_000)
    assert caught.value.message.startswith(f"{kind} record is not of topic contract version 1: ")
    assert len(caught.value.message) < 300, "a value may be large"
    assert f"wrote into the {topic} topic" in caught.value.remedy
