"""The SQL of values in Avro, as far as it needs no Spark, and numbers that are spelled in two ways."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame

from cdc.spark.errors import JobError
from cdc.spark.reconcile.second_look import as_floats
from cdc.spark.values.avro import replaced
from cdc.spark.values.avro_texts import literal, text_of


@pytest.mark.parametrize(
    ("text", "written"),
    [("a", "'a'"), ("it's", "'it\\'s'"), ("\\", "'\\\\'"), ("${env:HOME}", "'\\u0024{env:HOME}'"), ("é", "'é'")],
)
def test_a_constant_holds_any_name(text: str, written: str) -> None:
    assert literal(text) == written


def test_spark_decodes_integers_where_its_own_types_would_shift_or_refuse() -> None:
    assert text_of({"type": "int", "logicalType": "date"}, "date").schema == "int"
    assert text_of("boolean", "bool").schema == "int"
    assert text_of({"type": "long", "logicalType": "timestamp-micros"}, "timestamptz").schema == {
        "type": "long",
        "logicalType": "local-timestamp-micros",
    }
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    assert text_of(decimal, "numeric(12,2)").schema == {**decimal, "precision": 38, "scale": 0}


@pytest.mark.parametrize(
    "kind", [{"type": "array", "items": ["int", "string"]}, "enum", {"type": "long", "logicalType": "duration"}]
)
def test_other_types_are_refused(kind: Any) -> None:
    with pytest.raises((ValueError, KeyError)):
        text_of(kind, "int4")


@pytest.mark.parametrize(
    ("form", "one", "other", "are_equal"),
    [
        ("<d", "5e-324", "4.9e-324", True),
        ("<f", "1e-45", "1.4e-45", True),
        ("<d", "1e-45", "1.4e-45", False),
        ("<d", "0.1", "0.10000000000000001", True),
        ("<d", "0.1", "0.10000000000000002", False),
        ("<d", "0", "-0", False),
        ("<d", "NaN", "NaN", True),
        ("<d", "NaN", "Infinity", False),
        ("<f", "{1e-45,NULL,NaN,-1}", "{1.4e-45,NULL,NaN,-1}", True),
        ("<f", "{1,2}", "{2,1}", False),
        ("<f", "{{1,2}}", "{1,2}", False),
        ("<f", "1e99", "1e98", False),
        ("<d", "1x", "1y", False),
    ],
)
def test_numbers_are_compared_and_not_their_digits(form: str, one: str, other: str, are_equal: bool) -> None:
    assert (as_floats(one, form) == as_floats(other, form)) == are_equal


class Failed(AnalysisException):
    """What Spark raises, without a JVM that says why."""

    def __init__(self, condition: str) -> None:
        self._condition = condition

    def getCondition(self) -> str:  # noqa: N802  pyspark's name
        return self._condition


class Frame:
    """A DataFrame whose analysis fails."""

    def __init__(self, condition: str) -> None:
        self._condition = condition

    def withColumn(self, *_: object) -> None:  # noqa: N802  pyspark's name
        raise Failed(self._condition)


def test_a_missing_jar_is_named() -> None:
    with pytest.raises(JobError, match=r"add the jar org\.apache\.spark:spark-avro_2\.13"):
        replaced(cast(DataFrame, Frame("AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE")), "value", cast(Column, None))
    with pytest.raises(AnalysisException):
        replaced(cast(DataFrame, Frame("UNRESOLVED_COLUMN")), "value", cast(Column, None))
