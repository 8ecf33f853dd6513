"""Topics in other forms than JSON's default, which Spark's jobs do not read, are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.contract.record import SchemaColumn, TableSchema
from cdc.spark.errors import JobError
from cdc.spark.values.formed import refuse_forms

PLAIN = TableSchema("f" * 16, "public", "t", "shop.public.t", ("id",), (SchemaColumn("id", "int4"),))


def test_the_default_form_is_read() -> None:
    refuse_forms([PLAIN, replace(PLAIN, fingerprint="e" * 16)])


@pytest.mark.parametrize(
    "formed", [replace(PLAIN, is_connects=True), replace(PLAIN, columns=(SchemaColumn("at", "timestamp", form="iso"),))]
)
def test_other_forms_are_refused(formed: TableSchema) -> None:
    with pytest.raises(JobError, match=r"topic shop\.public\.t holds values in forms") as refused:
        refuse_forms([PLAIN, formed])
    assert "without the section values" in refused.value.remedy
