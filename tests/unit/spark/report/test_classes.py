"""A class of keys that is forgotten somewhere must not make a table identical."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cdc.spark.reconcile.summary import not_identical
from cdc.spark.reconcile.verdict import KeyClass
from cdc.spark.report.model import Counts, ReplicaCounts, Side, by_class
from cdc.spark.report.words import CLASS, MEANING


@pytest.mark.parametrize("kind", KeyClass)
def test_every_class_but_two_makes_a_table_different(kind: KeyClass) -> None:
    counts = Counts(**not_identical({kind: 1, "with_row": 1}, "topic"))
    assert (counts.differences > 0) == kind.is_difference
    assert sum(by_class(counts).values()) == (kind is not KeyClass.IDENTICAL)


@pytest.mark.parametrize("kind", KeyClass)
def test_a_replica_too_and_a_class_that_it_cannot_have_ends_the_run(kind: KeyClass) -> None:
    found = not_identical({kind: 1}, "replica")
    if kind is KeyClass.FOREIGN:
        with pytest.raises(ValidationError, match="foreign"):
            ReplicaCounts(table="t", lsn="0/1", **found)
    else:
        counts = ReplicaCounts(table="t", lsn="0/1", **found)
        assert (counts.differences > 0) == kind.is_difference


@pytest.mark.parametrize("side", ["topic", "replica"])
def test_every_class_has_its_words(side: Side) -> None:
    names = not_identical(dict.fromkeys(KeyClass, 1), side)
    assert names.keys() <= CLASS.keys()
    assert CLASS.keys() == MEANING.keys()
