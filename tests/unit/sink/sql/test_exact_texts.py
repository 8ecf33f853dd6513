"""A column that is checked as a whole is checked as strictly as its texts one by one."""

from __future__ import annotations

import pytest

from cdc.contract.formats.format import NULL
from cdc.sink.sql.dialect import StorageForm
from cdc.sink.sql.exact_texts import Texts, then

NUMBERS = Texts("TEXT").checked("-?[0-9]+", "a whole number")
WORDS = Texts("TEXT").checked("true|false", "a boolean")


def test_a_column_without_nulls_and_one_with_them() -> None:
    assert StorageForm("INTEGER", NUMBERS).values(["1", "-2"]) == ["1", "-2"]
    assert StorageForm("INTEGER", then(NUMBERS, int)).values([NULL, "1", NULL, "-2"]) == [None, 1, None, -2]
    assert StorageForm("INTEGER", NUMBERS).values([NULL]) == [None]
    assert StorageForm("TEXT").values(["a", NULL]) == ["a", None]


@pytest.mark.parametrize("wrong", ["", "x", "1\n", "N", "1 2", "\n", "1.5"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_wrong_text_among_others_is_found_and_named(wrong: str, place: int) -> None:
    texts = ["1", "2", NULL]
    texts.insert(place, wrong)
    with pytest.raises(ValueError, match="is not a whole number") as caught:
        StorageForm("INTEGER", NUMBERS).values(texts)
    assert str(caught.value).startswith(repr(wrong))


def test_an_alternative_ends_where_its_text_ends() -> None:
    assert StorageForm("BOOLEAN", WORDS).values(["true", "false", "true"]) == ["true", "false", "true"]
    with pytest.raises(ValueError, match="'truefalse' is not a boolean"):
        StorageForm("BOOLEAN", WORDS).values(["true", "truefalse"])
