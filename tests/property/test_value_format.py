"""Every value format gives back what it was given: rows and keys of all types, with a real server's texts.

A new format gets a class of its own below, with nothing in it but the format.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import ClassVar, Final

import pytest

from cdc.contract.change import UNCHANGED_TOAST, Column, Row
from cdc.contract.formats.format import NOT_ENCODABLE, NULL, ValueFormat
from cdc.contract.formats.json_format import JSON
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import Catalogue, printed_catalogue

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_NAMES: Final = ("c", "é", "%s", "a b", "\\", '"')


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


class ValueFormatContract:
    """What encoder, sink and repair expect of a format."""

    value_format: ClassVar[ValueFormat]

    def test_values_of_every_type_come_back(self, catalogue: Catalogue) -> None:
        found, expected = {}, {}
        for name, each in catalogue.types.items():
            writer = self.value_format.writer([each.column("c")])
            reader = self.value_format.reader([each.read_column("c")])
            rows: list[str] = []
            for text in each.texts:
                nulls = ["c"] if writer.null_documents((text,)) else []
                rows += reader.row(writer.encode((text,)), nulls)
            found[name] = catalogue.printed(name, [row.encode() for row in rows])
            expected[name] = each.texts
        assert found == expected

    def test_keys_of_every_type_come_back(self, catalogue: Catalogue) -> None:
        found, expected = {}, {}
        for name, each in catalogue.types.items():
            columns = [each.column("k"), Column("n", 23, -1, "pg_catalog.int4", True)]
            writer = self.value_format.writer(columns)
            keys = [writer.encode((text, b"%d" % n)) for n, text in enumerate(each.texts)]
            assert {self.value_format.members(key) for key in keys} == {frozenset({"k", "n"})}
            texts = [self.value_format.key_texts(columns, key) or (b"", b"") for key in keys]
            assert [number for _, number in texts] == [b"%d" % n for n in range(len(keys))]
            found[name] = catalogue.printed(name, [text for text, _ in texts])
            expected[name] = each.texts
        assert found == expected

    def test_random_rows_come_back_at_once_and_one_by_one(self, catalogue: Catalogue) -> None:
        rng = random.Random(SEED)
        for _ in range(times(30, soak=600)):
            types = rng.choices([*catalogue.types.values()], k=rng.randint(1, 12))
            names = [rng.choice(_NAMES) + str(i) for i in range(len(types))]
            writer = self.value_format.writer([each.column(name) for each, name in zip(types, names, strict=True)])
            reader = self.value_format.reader([each.read_column(name) for each, name in zip(types, names, strict=True)])
            rows = [
                tuple(None if rng.random() < 0.2 else rng.choice(each.texts) for each in types)
                for _ in range(rng.randint(1, 20))
            ]
            encoded = [writer.encode(row) for row in rows]
            hidden = [[names[place] for place in writer.null_documents(row)] for row in rows]
            single = [tuple(reader.row(each, nulls)) for each, nulls in zip(encoded, hidden, strict=True)]
            for place, each in enumerate(types):
                texts = [row[place] for row in single]
                given = [text.encode() for text in texts if text != NULL]
                found = iter(catalogue.printed(each.name, given))
                column = [None if text == NULL else next(found) for text in texts]
                assert column == [row[place] for row in rows], f"SEED={SEED}, a column of type {each.name}"
            at_once = None if any(hidden) else reader.block(encoded, are_keys=False)
            assert at_once is None or [tuple(row) for row in at_once] == single, f"SEED={SEED}"

    def test_a_bare_template_makes_what_the_writer_does(self, catalogue: Catalogue) -> None:
        for each in catalogue.types.values():
            writer = self.value_format.writer([each.column("c")])
            if writer.bare_template is not None:
                assert [writer.bare_template % text for text in each.texts] == [
                    writer.encode((text,)) for text in each.texts
                ]

    def test_a_row_that_is_not_whole_is_refused(self, catalogue: Catalogue) -> None:
        writer = self.value_format.writer([each.column(name) for name, each in catalogue.types.items()])
        whole = tuple(each.texts[0] for each in catalogue.types.values())
        writer.encode(whole)
        torn: tuple[Row, ...] = (whole[:-1], (*whole, b"1"), (*whole[:-1], UNCHANGED_TOAST))
        for row in torn:
            with pytest.raises(NOT_ENCODABLE):
                writer.encode(row)

    def test_a_text_that_is_not_of_its_type_is_a_problem_of_its_column(self, catalogue: Catalogue) -> None:
        columns = [catalogue.types[name].column(name) for name in ("integer", "boolean", "text")]
        writer = self.value_format.writer(columns)
        assert (writer.problem(0, b"7"), writer.problem(1, b"t"), writer.problem(2, b"t")) == ("", "", "")
        assert "'maybe'" in writer.problem(1, b"maybe")
        assert "0xff" in writer.problem(2, b"\xff")

    def test_bytes_that_lack_their_end_are_refused(self, catalogue: Catalogue) -> None:
        types = [catalogue.types[name] for name in ("integer", "text", "jsonb", "integer[]")]
        columns = [each.column(each.name) for each in types]
        whole = self.value_format.writer(columns).encode((b"7", b"a\\b", b"[1, null]", b"{1,NULL}"))
        reader = self.value_format.reader([each.read_column(each.name) for each in types])
        for length in range(len(whole)):
            part = whole[:length]
            with pytest.raises(ValueError, match=r"\w"):
                reader.row(part, ())
            assert reader.block([part], are_keys=False) is None
            assert self.value_format.key_texts(columns, part) is None


class TestJson(ValueFormatContract):
    value_format = JSON
