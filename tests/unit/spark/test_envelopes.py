"""Topics that Spark's jobs do not read are refused, and not taken for topics of plain rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.contract.record import DebeziumModes, SchemaColumn, TableSchema
from cdc.spark.errors import JobError
from cdc.spark.values.avro import refuse_envelopes

PLAIN = TableSchema("f" * 16, "public", "t", "shop.public.t", ("id",), (SchemaColumn("id", "int4"),))


def test_plain_rows_are_read() -> None:
    refuse_envelopes([PLAIN, replace(PLAIN, fingerprint="e" * 16)])


@pytest.mark.parametrize("enveloped", [replace(PLAIN, envelope=DebeziumModes()), replace(PLAIN, was_enveloped=True)])
def test_debeziums_events_are_refused_now_and_after_the_topic_began_anew(enveloped: TableSchema) -> None:
    """The log may still hold the former values."""
    with pytest.raises(JobError, match=r"topic shop\.public\.t holds Debezium's change events") as refused:
        refuse_envelopes([PLAIN, enveloped])
    assert "topics.envelope: plain" in refused.value.remedy
