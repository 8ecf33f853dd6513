"""Which key a relation's rows get, and when a topic begins anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.bridge.order.succession import Successions, shape_change
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.key_identity import key_change
from cdc.contract.record import ColumnForm, DebeziumModes, RowRule, SchemaColumn, TableSchema, WrittenSchema
from cdc.contract.schema import numbered, parse_schema, schema_value

TOPIC = "shop.public.t"


def relation(identity: ReplicaIdentity, flagged: str) -> Relation:
    columns = tuple(Column(name, 25, -1, "pg_catalog.text", name in flagged) for name in "abc")
    return Relation(7, "public", "t", identity, columns)


def written(key: str, relation_id: int = 7, topic: str = TOPIC) -> TableSchema:
    columns = tuple(SchemaColumn(name, "text") for name in "abc")
    return TableSchema("f" * 16, "public", topic.rpartition(".")[2], topic, tuple(key), columns, relation_id)


@pytest.mark.parametrize(
    ("identity", "flagged", "before", "catalog", "key"),
    [
        ("DEFAULT", "a", "", "a", "a"),
        ("DEFAULT", "ab", "", "ba", "ba"),  # the order is the catalog's
        ("DEFAULT", "ab", "ab", "ba", "ab"),  # but stays what it was
        ("DEFAULT", "a", "a", "b", "a"),  # the stream has not come to today's key
        ("DEFAULT", "b", "a", "b", "b"),
        ("DEFAULT", "bc", "a", "b", "bc"),  # a key between two others: the stream knows it
        ("DEFAULT", "", "a", "b", "a"),  # no primary key for a moment
        ("INDEX", "b", "a", "b", "b"),
        ("INDEX", "ab", "a", "a", "a"),
        ("FULL", "abc", "a", "b", "b"),
        ("FULL", "abc", "a", "a", "a"),
        ("FULL", "abc", "", "bc", "bc"),
    ],
)
def test_key(identity: str, flagged: str, before: str, catalog: str, key: str) -> None:
    successions = Successions([written(before)] if before else [])
    assert successions.key(relation(ReplicaIdentity[identity], flagged), TOPIC, tuple(catalog)) == tuple(key)


def test_new_beginnings() -> None:
    successions = Successions([written("ab")])
    assert successions.new_beginning(written("ab")) is None
    assert successions.new_beginning(written("ba")) is None
    assert successions.new_beginning(written("a", topic="other")) is None

    def cause(schema: TableSchema) -> str:
        beginning = successions.new_beginning(schema)
        assert beginning is not None
        return beginning.cause

    assert cause(written("b")) == "key"
    assert cause(written("b", relation_id=8)) == "object"
    successions.wrote(written("ab", topic="shop.public.renamed"))
    assert cause(written("ab")) == "return"


def test_another_condition_begins_the_topic_anew() -> None:
    """The first one, too: what the stream brings may be from before it."""
    one, other = RowRule("(n > 1)", 5), RowRule("(n > 2)", 5)
    filtered = replace(written("ab"), rows=one)
    assert Successions().new_beginning(written("ab")) is None
    first = Successions().new_beginning(filtered)
    assert first == ("first", "its rows are chosen by a condition, so they are read before changes are published")
    successions = Successions([filtered])
    why_anew = "the publication got its condition anew, and may have let other rows through for a while"
    assert successions.new_beginning(filtered) is None
    for rows, why in (
        (other, "its rows are chosen by (n > 2) now, but its topic was written by (n > 1)"),
        (None, "its rows are chosen by no condition now, but its topic was written by (n > 1)"),
        (one._replace(entry=6), why_anew),
    ):
        assert successions.new_beginning(replace(filtered, rows=rows)) == ("rules", why)


def test_another_format_begins_the_topic_anew() -> None:
    """Readers would have to expect both in one topic for ever."""
    successions = Successions([written("a")])
    beginning = successions.new_beginning(replace(written("a"), format="avro"))
    assert beginning is not None
    assert beginning.cause == "format"
    assert beginning.why == "its values are to be written as avro now, but its topic was written as json"
    successions.wrote(replace(written("a"), format="avro"))
    assert successions.new_beginning(replace(written("a"), format="avro")) is None


def test_another_envelope_begins_the_topic_anew() -> None:
    enveloped = replace(written("a"), envelope=DebeziumModes())
    other = replace(written("a"), envelope=DebeziumModes(decimal="string"))
    successions = Successions([written("a")])
    assert not successions.was_enveloped(TOPIC)
    successions.wrote(enveloped)
    assert successions.was_enveloped(TOPIC)
    assert successions.new_beginning(enveloped) is None
    for now, words in (
        (other, "as json in Debezium's envelope (string.adaptive.bytes.json.plain) now"),
        (written("a"), "as json now, but its topic was written as json in Debezium's envelope (precise."),
    ):
        beginning = successions.new_beginning(now)
        assert beginning is not None
        assert beginning.cause == "format"
        assert words in beginning.why
    successions.wrote(replace(written("a"), was_enveloped=True))
    assert successions.was_enveloped(TOPIC)


def test_other_forms_begin_the_topic_anew_and_other_columns_do_not() -> None:
    def formed(forms: dict[str, ColumnForm], types: str = "timestamp", *, is_connects: bool = False) -> TableSchema:
        columns = (SchemaColumn("a", "text"), *(SchemaColumn(name, types, form=forms.get(name, "")) for name in "bc"))
        return replace(written("a"), columns=columns, is_connects=is_connects)

    successions = Successions([formed({"b": "iso"})])
    for now, words in (
        (formed({}), "as json now, but its topic was written as json with b as iso"),
        (formed({"b": "iso", "c": "iso"}), "as json with b as iso, c as iso now"),
        (formed({"b": "iso"}, is_connects=True), "as json with b as iso, its schema now"),
    ):
        beginning = successions.new_beginning(now)
        assert beginning is not None
        assert beginning.cause == "format"
        assert words in beginning.why
    assert successions.new_beginning(formed({"b": "iso"}, "timestamp(3)")) is None
    assert successions.new_beginning(formed({}, "text")) is None
    assert successions.new_beginning(formed({"b": "base64"}, "bytea")) is None
    more = (*formed({"b": "iso"}).columns, SchemaColumn("d", "bytea", form="base64"))
    assert successions.new_beginning(replace(formed({}), columns=more)) is None


def test_another_form_of_keys_begins_the_topic_anew() -> None:
    """Else a row would have two keys."""
    pinned, other = WrittenSchema(7, "{}", "avro"), WrittenSchema(8, "{}", "avro")
    in_avro, elsewhere = replace(written("a"), key_schema=pinned), replace(written("a"), key_schema=other)
    successions = Successions([written("a")])
    for now, cause, why in (
        (in_avro, "key-format", "its keys are to be written in avro now, but its topic was written with keys in json"),
        (
            elsewhere,
            "key-id",
            "gives the schema of its keys the id 8 now, but its keys begin with the id 7",
        ),
        (written("a"), "key-format", "to be written in json now, but its topic was written with keys in avro"),
    ):
        beginning = successions.new_beginning(now)
        assert beginning is not None
        assert beginning.cause == cause
        assert why in beginning.why
        successions.wrote(replace(now, fingerprint=cause + str(now.key_schema)))
        assert successions.new_beginning(now) is None
    assert successions.key_ids(TOPIC) == {7: pinned, 8: other}
    successions.wrote(in_avro)
    beginning = successions.new_beginning(replace(written("b"), key_schema=other))
    assert beginning is not None
    assert beginning.cause == "key", "which says more"


def test_the_schemas_of_a_definition_are_known_after_others_were_used() -> None:
    first = replace(written("a"), format="avro", written=(WrittenSchema(7, "{}", "avro"),))
    successions = Successions([first, replace(written("b"), fingerprint="e" * 16)])
    assert successions.written(TOPIC, first.fingerprint) == first.written
    assert successions.ids(TOPIC) == {7: first.written[0]}
    assert successions.written(TOPIC, "e" * 16) == successions.written("other", first.fingerprint) == ()


def test_names_that_changed_hands_are_known_without_a_row() -> None:
    successions = Successions([written("a"), written("a", relation_id=8, topic="other")])

    def cause(topic: str, relation_id: int) -> str | None:
        changed = successions.changed_hands(topic, relation_id)
        return None if changed is None else changed.cause

    assert (cause(TOPIC, 7), cause("other", 8), cause("new", 9)) == (None, None, None)
    successions.wrote(written("a", topic="other"))  # the first table was called as the other is, and has its name back
    assert (cause(TOPIC, 7), cause("other", 8)) == ("return", "object")


def test_a_table_that_left_for_a_while() -> None:
    successions = Successions([written("a")])
    successions.left(replace(relation(ReplicaIdentity.DEFAULT, "a"), namespace="hidden"))
    beginning = successions.new_beginning(written("a"))
    assert beginning is not None
    assert beginning.why == "it was called hidden.t for a while"


def test_definitions_from_before_tables_were_told_apart() -> None:
    assert Successions([written("a", relation_id=0)]).new_beginning(written("a")) is None


def test_shape_change() -> None:
    before = written("a")
    now = replace(before, columns=(SchemaColumn("a", "text"), SchemaColumn("b", "int4"), SchemaColumn("d", "text")))
    assert shape_change(before, now) == "added: d; dropped: c; of another type: b (text → int4)"
    assert shape_change(before, before) == ""


def test_a_column_that_was_dropped_and_added_again_is_another_one() -> None:
    """Its name and type are as before, and rows that do not change keep the values of the former."""
    before, now = (
        replace(written("a"), columns=tuple(SchemaColumn(name, "text", number) for name, number in columns))
        for columns in ((("a", 1), ("b", 2), ("c", 3)), (("a", 1), ("z", 2), ("c", 4)))
    )
    assert shape_change(before, now) == "renamed: b → z; dropped and added again: c"
    unknown = replace(now, columns=tuple(replace(each, number=0) for each in now.columns))
    assert shape_change(unknown, now) == shape_change(now, unknown) == ""
    swapped = replace(
        before, columns=tuple(SchemaColumn(name, "text", i) for name, i in (("a", 1), ("c", 2), ("b", 3)))
    )
    assert shape_change(before, swapped) == "renamed: b → c, c → b"
    assert parse_schema(schema_value(now)) == now


def test_numbers_are_on_record_only_where_they_are_certain() -> None:
    """The catalog may be later than the stream: by name alone, a column got the number of another one."""
    stream = written("a")

    def numbers(today: dict[str, int], before: TableSchema | None = None) -> list[int]:
        return [column.number for column in numbered(stream, today, before).columns]

    assert numbers({"a": 1, "b": 2, "c": 3}) == [0, 2, 3], "of a key column nothing is said here"
    assert numbers({"a": 1, "c": 2, "b": 3}) == [0, 0, 0], "names were exchanged"
    assert numbers({"a": 1, "b": 2}) == [0, 0, 0], "a column is gone"
    before = numbered(stream, {"a": 1, "b": 2, "c": 3}, None)
    assert numbers({"a": 1, "b": 2, "c": 4}, before) == [0, 2, 3], "rows of the former column may still come"
    assert numbers({"a": 1, "c": 2, "b": 3}, before) == [0, 2, 3]


def columns(*each: tuple[str, int]) -> tuple[SchemaColumn, ...]:
    return tuple(SchemaColumn(name, "int4", number, 23) for name, number in each)


def of(*each: tuple[str, int], key: str = "id", relation_id: int = 7) -> TableSchema:
    return replace(written(key, relation_id=relation_id), key=(key,), columns=columns(*each))


@pytest.mark.parametrize(
    ("before", "stream", "today", "number"),
    [
        (of(("id", 1), ("n", 2)), "id n", columns(("id", 1), ("n", 2)), 1),
        (of(("n", 2), ("id", 3)), "n id", columns(("n", 2), ("id", 4)), 3),  # replaced later: the catalog tells
        (of(("id", 1), ("u", 2)), "u id", columns(("id", 1), ("u", 2)), 0),  # names exchanged for a while
        (of(("id", 1), ("u", 2)), "old id", columns(("id", 1), ("u", 2)), 0),  # likewise, under a third name
        (of(("id", 1), ("u", 2)), "id v", columns(("id", 1), ("v", 2), ("w", 3)), 1),  # between two migrations
        (of(("x", 1), ("id", 2)), "y id", columns(("y", 1), ("id", 2)), 2),  # a column in front got another name
        (of(("x", 1), ("id", 2)), "id", columns(("id", 2)), 2),  # or was dropped
        (None, "id n", columns(("id", 1), ("n", 2)), 1),  # nothing was ever dropped
        (None, "id n", columns(("id", 2), ("n", 3)), 0),  # something was: maybe an id
        (None, "n id", (), 0),  # the table is gone
        (of(("id", 0), ("n", 2)), "id n", columns(("id", 1), ("n", 2)), 0),  # never known
        (of(("id", 1), relation_id=8), "id", columns(("id", 1)), 1),  # another table
        (of(("id", 1), relation_id=8), "id", columns(("id", 2)), 0),
    ],
)
def test_the_number_of_a_key_column_is_only_recorded_where_it_is_certain(
    before: TableSchema | None, stream: str, today: tuple[SchemaColumn, ...], number: int
) -> None:
    successions = Successions([before] if before else [])
    kept = successions.kept(of(*((name, 0) for name in stream.split())), today)
    assert {each.name: each.number for each in kept.columns}["id"] == number


def test_what_was_read_with_its_catalog_is_believed() -> None:
    successions = Successions([of(("id", 1), ("n", 2))])
    read = of(("n", 2), ("id", 4))
    assert successions.kept(read, ()) == read
    beginning = successions.new_beginning(read)
    assert beginning is not None
    assert beginning.cause == "key"
    assert "attribute 4, before 1" in beginning.why
    successions.wrote(of(("id", 0), ("n", 2)))
    beginning = successions.new_beginning(read)
    assert beginning is not None
    assert beginning.cause == "uncertain"
    assert successions.new_beginning(of(("n", 0), ("id", 0))) is None  # the stream does not tell


def test_a_type_of_a_key_column() -> None:
    mood = SchemaColumn("id", '"public"."mood"', 1, 20000, ((1, "a"), (2, "b")))
    assert key_change(mood, replace(mood, labels=((1, "a"), (2, "b"), (3, "c")))) == ""
    assert key_change(mood, replace(mood, sql_type='"public"."renamed"')) == ""
    assert "renamed" in key_change(mood, replace(mood, labels=((1, "b"), (2, "a"))))
    assert "another type of the same name" in key_change(mood, replace(mood, type_oid=20001))
    price = SchemaColumn("id", "numeric", 1, 20002)  # a domain, whose limit the stream does not tell
    assert key_change(price, replace(price, type_oid=20003)) != ""
    assert key_change(replace(price, sql_type="numeric(10,2)", type_oid=1700), price) != ""
    assert key_change(SchemaColumn("id", "int4", 1, 23), SchemaColumn("id", "int8", 1, 20)) == ""
    assert key_change(SchemaColumn("id", "int4", 1), SchemaColumn("id", "text", 1, 25)) == "has type text, before int4"


def test_the_reasons_name_what_was_and_what_is() -> None:
    successions = Successions([written("ab"), written("a", topic="other")])
    beginning = successions.new_beginning(written("bc"))
    assert beginning == ("key", "its key is now (b, c), but its topic was written with (a, b)")
    assert successions.changed_hands(TOPIC, 9) == ("object", "another table has taken this name")
    successions.wrote(of(("id", 0)))
    assert successions.new_beginning(of(("id", 1))) == (
        "uncertain",
        "nothing on record shows that its key column id is still the same column",
    )
    both = replace(of(("id", 1), ("n", 2)), key=("id", "n"))
    successions.wrote(both)
    other = replace(of(("id", 1), ("m", 2)), key=("id", "n"))
    assert successions.new_beginning(other) is None, "a key column that only one of both has tells nothing here"


def test_definitions_are_found_by_topic_and_by_table() -> None:
    definition, other = written("a"), written("b", relation_id=8, topic="other")
    successions = Successions([definition, other])
    assert (successions.last(TOPIC), successions.last("other"), successions.last("new")) == (definition, other, None)
    assert (successions.last_of(7), successions.last_of(8), successions.last_of(9)) == (definition, other, None)
    left = relation(ReplicaIdentity.DEFAULT, "a")
    successions.left(replace(left, namespace="hidden", name="u"))
    assert successions.last_of(7) == replace(definition, namespace="hidden", name="u", topic="")
    assert successions.last(TOPIC) == definition


def test_the_labels_of_a_key_column_stay_while_its_type_does() -> None:
    labels = ((1, "a"), (2, "b"))
    mood = SchemaColumn("id", '"public"."mood"', 1, 20000, labels)
    successions = Successions([replace(of(("id", 1)), columns=(mood,))])
    of_the_stream = replace(mood, number=0, labels=())
    (kept,) = successions.kept(replace(of(("id", 0)), columns=(of_the_stream,)), (mood,)).columns
    assert kept == mood
    small, large = SchemaColumn("id", "int4", 1, 23, labels), SchemaColumn("id", "int8", 0, 20)
    successions = Successions([replace(of(("id", 1)), columns=(small,))])
    (kept,) = successions.kept(replace(of(("id", 0)), columns=(large,)), (replace(large, number=1),)).columns
    assert kept == replace(large, number=1), "labels are of a type, and this is another one"


def test_only_key_columns_get_numbers_here() -> None:
    successions = Successions([of(("id", 1), ("n", 2))])
    kept = successions.kept(of(("id", 0), ("n", 0)), columns(("id", 1), ("n", 2)))
    assert [each.number for each in kept.columns] == [1, 0]
    read = of(("id", 5), ("n", 0))
    assert successions.kept(read, columns(("id", 1), ("n", 2))) == read, "a number that was read with its row stays"


def test_a_table_that_comes_to_another_topic_keeps_what_is_certain_of_its_columns() -> None:
    """The definition is that of the table under its former name; the name's former table says nothing."""
    mine = replace(of(("id", 3)), topic="former")
    successions = Successions([of(("id", 1), relation_id=8), mine])
    kept = successions.kept(of(("id", 0)), columns(("id", 3)))
    assert [each.number for each in kept.columns] == [3]
    kept = successions.kept(of(("id", 0)), columns(("id", 4)))
    assert [each.number for each in kept.columns] == [0], "it is another column today"
    kept = successions.kept(of(("id", 0)), ())
    assert [each.number for each in kept.columns] == [0], "or gone"


def test_a_relation_without_some_key_column_does_not_carry_the_key() -> None:
    successions = Successions([written("ad")])
    assert successions.key(relation(ReplicaIdentity.FULL, "abc"), TOPIC, ("a", "b")) == ("a", "b")
    assert successions.key(relation(ReplicaIdentity.DEFAULT, ""), TOPIC, ("b",)) == ("b",)
    all_of_it = replace(relation(ReplicaIdentity.FULL, "abc"))
    assert Successions([written("abc")]).key(all_of_it, TOPIC, tuple("abc")) == ("a", "b", "c")
    assert Successions([]).key(relation(ReplicaIdentity.DEFAULT, "ab"), TOPIC, ()) == ("a", "b")


def test_a_key_column_after_a_hidden_one_is_certain_all_the_same() -> None:
    """The catalog has the hidden column, and the definition has not."""
    hidden = (("secret", "excluded"),)
    today = columns(("secret", 1), ("id", 2), ("n", 3))
    new = replace(of(("id", 0), ("n", 0)), rules=hidden)
    assert [each.number for each in Successions().kept(new, today).columns] == [2, 0]
    before = replace(of(("id", 2), ("n", 3)), rules=hidden)
    assert [each.number for each in Successions([before]).kept(new, today).columns] == [2, 0]
    assert [each.number for each in Successions().kept(replace(new, rules=()), today).columns] == [0, 0]


def test_other_rules_begin_anew_and_the_same_ones_go_on() -> None:
    before = replace(of(("id", 1)), rules=(("mail", "sha256 1a2b3c4d"),))
    successions = Successions([before])
    assert successions.new_beginning(before) is None
    for rules in ((), (("mail", "excluded"),), (("mail", "sha256 00000000"),)):
        beginning = successions.new_beginning(replace(before, rules=rules))
        assert beginning is not None
        assert beginning.cause == "rules"
        assert "mail: sha256 1a2b3c4d" in beginning.why
